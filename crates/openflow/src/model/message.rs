//! Messages.

use super::*;
use crate::{ErrorBody, Hello};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The transaction id, which pairs requests and replies.
    pub xid: u32,
    /// The body.
    pub body: Body,
}

/// The body of a message.
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
    /// OpenFlow 1.3, and Nicira's extension of older versions.
    SetAsync(AsyncConfig),
    /// OpenFlow 1.4, and the ONF's extension of 1.3.
    RoleStatus(RoleStatus),
    /// OpenFlow 1.4.
    TableStatus(TableStatus),
    /// A group or meter change by another controller or the switch; OpenFlow 1.4, and the ONF's
    /// extension of 1.3. It holds a [`Body::GroupMod`] or a [`Body::MeterMod`].
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
    /// Nicira's: set the flow format; `nxm` is the newer one.
    SetFlowFormat {
        nxm: bool,
    },
    /// Nicira's: whether OpenFlow 1.0's flow-mods hold a table id.
    FlowModTableId(bool),
    /// Nicira's: set the packet-in format.
    SetPacketInFormat(PacketInFormat),
    /// Nicira's: set the connection's controller id, which actions name.
    SetControllerId(u16),
    /// Nicira's: flow age; without effect today.
    FlowAge,
    /// Nicira's: cancel a flow monitor.
    FlowMonitorCancel(u32),
    /// Nicira's: flow monitors paused, because the controller is slow.
    FlowMonitorPaused,
    /// Nicira's: flow monitors resumed.
    FlowMonitorResumed,
    /// Nicira's: resume a paused pipeline.
    Resume(Box<PacketIn>),
    /// Nicira's: change the map of tunnel options: 0 adds, 1 deletes, 2 clears.
    TlvTableMod {
        command: u16,
        maps: Vec<TlvMap>,
    },
    /// Nicira's: request the map of tunnel options.
    TlvTableRequest,
    /// Nicira's: the map of tunnel options.
    TlvTableReply(TlvTable),
    /// Nicira's: flush the connections of a zone.
    CtFlushZone(u16),
    /// Nicira's: flush some connections.
    CtFlush(Box<CtFlush>),
}

/// A multipart request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StatsRequest {
    Desc,
    /// Rules with their statistics; in OpenFlow 1.5, their descriptions.
    Flow(FlowStatsRequest),
    /// Statistics of rules without their instructions; OpenFlow 1.5.
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

/// A multipart reply, or a part of it.
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
