"""A learning switch by packet-ins, for the OpenFlow version in OXVS_OFP (1.0 to 1.5).

It installs a rule for each pair of stations once it knows where both are, with an idle timeout, asks for the rule's
removal to be told, and prints a line for each event that a test waits for.
"""

import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_0, ofproto_v1_2, ofproto_v1_3, ofproto_v1_4, ofproto_v1_5

VERSIONS = {"1.0": ofproto_v1_0, "1.2": ofproto_v1_2, "1.3": ofproto_v1_3, "1.4": ofproto_v1_4, "1.5": ofproto_v1_5}
VERSION = os.environ.get("OXVS_OFP", "1.3")
V10 = VERSION == "1.0"


def say(*words):
    print("APP", *words, flush=True)


class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [VERSIONS[VERSION].OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.places = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        say("features", hex(event.msg.datapath_id), "version", hex(event.msg.version), "tables", event.msg.n_tables)
        datapath = event.msg.datapath
        if not V10:
            # From OpenFlow 1.3 on, a switch drops packets that match no rule. One of 1.2 sends them
            # to the controller; the rule is installed on both.
            parser, ofp = datapath.ofproto_parser, datapath.ofproto
            out = [parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)]
            self.add_rule(datapath, 0, parser.OFPMatch(), out, 0)
        datapath.send_msg(datapath.ofproto_parser.OFPBarrierRequest(datapath))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def barrier(self, _event):
        say("ready")

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, event):
        say("error", event.msg.type, event.msg.code)

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def removed(self, event):
        say("removed", "reason", event.msg.reason, "packets", self.packets(event.msg))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath = message.datapath
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        in_port = message.in_port if V10 else message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        if frame.ethertype == 0x88CC:
            return
        places = self.places.setdefault(datapath.id, {})
        places[frame.src] = in_port
        out_port = places.get(frame.dst, ofp.OFPP_FLOOD)
        say("packet-in", frame.src, frame.dst, "port", in_port)
        actions = [parser.OFPActionOutput(out_port)]
        if out_port != ofp.OFPP_FLOOD:
            match = self.match(parser, in_port, frame)
            self.add_rule(datapath, 10, match, actions, 2)
        self.send_out(datapath, message, in_port, actions)

    @staticmethod
    def packets(message):
        if VERSION == "1.5":
            return message.stats["packet_count"]
        return message.packet_count

    @staticmethod
    def match(parser, in_port, frame):
        if V10:
            return parser.OFPMatch(in_port=in_port, dl_src=frame.src, dl_dst=frame.dst)
        return parser.OFPMatch(in_port=in_port, eth_src=frame.src, eth_dst=frame.dst)

    @staticmethod
    def add_rule(datapath, priority, match, actions, idle):
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        how = {"priority": priority, "match": match, "idle_timeout": idle, "command": ofp.OFPFC_ADD}
        how["flags"] = ofp.OFPFF_SEND_FLOW_REM if idle else 0
        if V10:
            datapath.send_msg(parser.OFPFlowMod(datapath, cookie=7, actions=actions, **how))
        else:
            apply = parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)
            datapath.send_msg(parser.OFPFlowMod(datapath, cookie=7, instructions=[apply], **how))

    @staticmethod
    def send_out(datapath, message, in_port, actions):
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        how = {"buffer_id": ofp.OFP_NO_BUFFER if not V10 else 0xFFFFFFFF, "actions": actions, "data": message.data}
        if VERSION == "1.5":
            how["match"] = parser.OFPMatch(in_port=in_port)
        else:
            how["in_port"] = in_port
        datapath.send_msg(parser.OFPPacketOut(datapath, **how))
