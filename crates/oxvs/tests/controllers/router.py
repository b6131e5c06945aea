"""A router for two subnets, OpenFlow 1.3, all of whose forwarding is rules: ARP for the gateways is answered from here,
addresses are rewritten and the time to live is counted by the switch.

Port 1 is 10.1.1.0/24 with the gateway 10.1.1.254, port 2 is 10.1.2.0/24 with the gateway 10.1.2.254.
"""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import arp, ethernet, packet
from os_ken.ofproto import ofproto_v1_3

GATEWAYS = {1: ("10.1.1.254", "02:00:00:00:01:fe"), 2: ("10.1.2.254", "02:00:00:00:02:fe")}
ROUTES, HOSTS = 0, 1


def say(*words):
    print("APP", *words, flush=True)


class Router(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        datapath = event.msg.datapath
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        to_us = [parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)]
        self.rule(datapath, ROUTES, 20, parser.OFPMatch(eth_type=0x0806), to_us)
        for port, (_, mac) in GATEWAYS.items():
            subnet = (f"10.1.{port}.0", "255.255.255.0")
            route = [
                parser.OFPActionSetField(eth_src=mac),
                parser.OFPActionDecNwTtl(),
            ]
            match = parser.OFPMatch(eth_type=0x0800, ipv4_dst=subnet)
            self.rule(datapath, ROUTES, 10, match, route, HOSTS)
        datapath.send_msg(parser.OFPBarrierRequest(datapath))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def barrier(self, _event):
        say("ready")

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, event):
        say("error", event.msg.type, event.msg.code)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath, port = message.datapath, message.match["in_port"]
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        asked = packet.Packet(message.data).get_protocol(arp.arp)
        if asked is None or port not in GATEWAYS:
            return
        address, mac = GATEWAYS[port]
        say("host", asked.src_ip, asked.src_mac, "port", port)
        match = parser.OFPMatch(eth_type=0x0800, ipv4_dst=asked.src_ip)
        to_host = [parser.OFPActionSetField(eth_dst=asked.src_mac), parser.OFPActionOutput(port)]
        self.rule(datapath, HOSTS, 10, match, to_host)
        if asked.opcode == arp.ARP_REQUEST and asked.dst_ip == address:
            reply = packet.Packet()
            reply.add_protocol(ethernet.ethernet(asked.src_mac, mac, 0x0806))
            reply.add_protocol(arp.arp_ip(arp.ARP_REPLY, mac, address, asked.src_mac, asked.src_ip))
            reply.serialize()
            out = [parser.OFPActionOutput(port)]
            datapath.send_msg(
                parser.OFPPacketOut(
                    datapath, buffer_id=ofp.OFP_NO_BUFFER, in_port=ofp.OFPP_CONTROLLER, actions=out, data=reply.data
                )
            )

    @staticmethod
    def rule(datapath, table, priority, match, actions, goto=None):
        parser, ofp = datapath.ofproto_parser, datapath.ofproto
        instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)]
        if goto is not None:
            instructions.append(parser.OFPInstructionGotoTable(goto))
        datapath.send_msg(
            parser.OFPFlowMod(datapath, table_id=table, priority=priority, match=match, instructions=instructions)
        )
