//! Messages.

use super::*;
use crate::{ErrorBody, Hello};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Pairs requests and replies.
    pub xid: u32,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Body {
    Hello(Hello),
    Error(ErrorBody),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    FeaturesRequest,
    FeaturesReply(Features),
    GetConfigRequest,
    GetConfigReply(Config),
    SetConfig(Config),
    PacketIn(Box<PacketIn>),
    FlowRemoved(Box<FlowRemoved>),
    PortStatus(Box<PortStatus>),
    PacketOut(Box<PacketOut>),
    FlowMod(Box<FlowMod>),
    GroupMod(GroupMod),
    PortMod(PortMod),
    TableMod(TableMod),
    MeterMod(MeterMod),
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest(Port),
    QueueGetConfigReply {
        port: Port,
        queues: Vec<QueueConfig>,
    },
    RoleRequest(RoleMsg),
    RoleReply(RoleMsg),
    GetAsyncRequest,
    GetAsyncReply(AsyncConfig),
    /// Of OpenFlow 1.3, and of Nicira for older versions.
    SetAsync(AsyncConfig),
    /// OpenFlow 1.4, and the foundation's for 1.3.
    RoleStatus(RoleStatus),
    /// OpenFlow 1.4.
    TableStatus(TableStatus),
    /// Another controller's change of a group or a meter, or the switch's own; OpenFlow 1.4, and
    /// the foundation's for 1.3. In it is a [`Body::GroupMod`] or a [`Body::MeterMod`].
    RequestForward(Box<Message>),
    /// OpenFlow 1.5.
    ControllerStatus(ControllerStatus),
    BundleControl(BundleControl),
    BundleAdd(BundleAdd),
    StatsRequest {
        more: bool,
        request: StatsRequest,
    },
    StatsReply {
        more: bool,
        reply: StatsReply,
    },
    /// Nicira's: which formats rules are told in; whether the newer match is.
    SetFlowFormat {
        nxm: bool,
    },
    /// Nicira's: whether OpenFlow 1.0's flow-mods say the table.
    FlowModTableId(bool),
    /// Nicira's: how packets are told.
    SetPacketInFormat(PacketInFormat),
    /// Nicira's: the connection's number, for actions that say one.
    SetControllerId(u16),
    /// Nicira's: ages are wanted; has no meaning any more.
    FlowAge,
    /// Nicira's: end of a monitor.
    FlowMonitorCancel(u32),
    /// Nicira's: monitors wait, since the controller is slow.
    FlowMonitorPaused,
    /// Nicira's: monitors go on.
    FlowMonitorResumed,
    /// Nicira's: a paused pipeline goes on.
    Resume(Box<PacketIn>),
    /// Nicira's: a change of the tunnel options' map: 0 adds, 1 deletes, 2 clears.
    TlvTableMod {
        command: u16,
        maps: Vec<TlvMap>,
    },
    /// Nicira's: the tunnel options' map is wanted.
    TlvTableRequest,
    /// Nicira's: the tunnel options' map.
    TlvTableReply(TlvTable),
    /// Nicira's: connections of a zone are to be forgotten.
    CtFlushZone(u16),
    /// Nicira's: some connections are to be forgotten.
    CtFlush(Box<CtFlush>),
}

/// A question with an answer of many parts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StatsRequest {
    Desc,
    /// Rules with their statistics; in OpenFlow 1.5, their descriptions.
    Flow(FlowStatsRequest),
    /// Rules' statistics without what they do; OpenFlow 1.5.
    FlowStats(FlowStatsRequest),
    Aggregate(FlowStatsRequest),
    Table,
    Port(Port),
    Queue {
        port: Port,
        queue: u32,
    },
    QueueDesc {
        port: Port,
        queue: u32,
    },
    Group(u32),
    GroupDesc(u32),
    GroupFeatures,
    Meter(u32),
    MeterConfig(u32),
    MeterFeatures,
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Port),
    FlowMonitor(Vec<FlowMonitorRequest>),
    /// OpenFlow 1.4.
    TableDesc,
    /// OpenFlow 1.5.
    ControllerStatus,
    /// OpenFlow 1.5.
    BundleFeatures(BundleFeatures),
    /// Nicira's.
    IpfixBridge,
    /// Nicira's.
    IpfixFlow,
}

/// An answer, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StatsReply {
    Desc(SwitchDesc),
    Flow {
        flows: Vec<FlowStats>,
        nxm: bool,
    },
    /// OpenFlow 1.5.
    FlowStats(Vec<FlowCounters>),
    Aggregate {
        stats: AggregateStats,
        nxm: bool,
    },
    Table(Vec<TableStats>),
    Port(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    QueueDesc(Vec<(Port, QueueConfig)>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures(MeterFeatures),
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Vec<PortDesc>),
    FlowMonitor(Vec<FlowUpdate>),
    /// OpenFlow 1.4.
    TableDesc(Vec<TableDesc>),
    /// OpenFlow 1.5.
    ControllerStatus(Vec<ControllerStatus>),
    /// OpenFlow 1.5.
    BundleFeatures(BundleFeatures),
    /// Nicira's.
    IpfixBridge(IpfixStats),
    /// Nicira's.
    IpfixFlow(Vec<IpfixStats>),
}
