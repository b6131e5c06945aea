//! What of the configuration database the daemon follows: all that configures the switch, and not
//! what the daemon writes itself.

use ovsdb::idl::{Idl, Selection};
use ovsdb::rows::{
    AutoAttach, Bridge, Controller, CtTimeoutPolicy, CtZone, Datapath as DatapathRow, FlowSampleCollectorSet,
    FlowTable, Interface, Ipfix, Manager, Mirror, NetFlow, OpenVSwitch, Port, QoS, Queue, SFlow, Ssl, TypedRow, bridge,
    controller, datapath, interface, manager, mirror, open_vswitch, port, select,
};

/// The database that the switch serves.
const DATABASE: &str = "Open_vSwitch";

/// The lock that only one daemon holds per database.
const LOCK: &str = "ovs_vswitchd";

/// This daemon's client of the configuration database.
pub(crate) fn idl(seed: u128) -> Idl {
    let mut selection = Selection::new();
    select::<OpenVSwitch>(&mut selection);
    select::<Bridge>(&mut selection);
    select::<Port>(&mut selection);
    select::<Interface>(&mut selection);
    select::<FlowTable>(&mut selection);
    select::<QoS>(&mut selection);
    select::<Queue>(&mut selection);
    select::<Ssl>(&mut selection);
    select::<Controller>(&mut selection);
    select::<Mirror>(&mut selection);
    select::<AutoAttach>(&mut selection);
    select::<NetFlow>(&mut selection);
    select::<SFlow>(&mut selection);
    select::<Ipfix>(&mut selection);
    select::<FlowSampleCollectorSet>(&mut selection);
    select::<DatapathRow>(&mut selection);
    select::<CtZone>(&mut selection);
    select::<CtTimeoutPolicy>(&mut selection);
    selection.quiet(DatapathRow::TABLE, &[datapath::columns::CAPABILITIES]);
    selection.quiet(Mirror::TABLE, &[mirror::columns::STATISTICS]);
    {
        use manager::columns::*;
        selection.columns(Manager::TABLE, &[TARGET, CONNECTION_MODE]);
    }
    // The daemon needs no notification of its own writes.
    {
        use open_vswitch::columns::*;
        let own = [
            CUR_CFG,
            OVS_VERSION,
            IFACE_TYPES,
            DATAPATH_TYPES,
            DPDK_INITIALIZED,
            DPDK_VERSION,
            STATISTICS,
        ];
        selection.quiet(OpenVSwitch::TABLE, &own);
    }
    {
        use bridge::columns::*;
        selection.quiet(Bridge::TABLE, &[DATAPATH_ID, DATAPATH_VERSION, STATUS, RSTP_STATUS]);
    }
    {
        use controller::columns::*;
        selection.quiet(Controller::TABLE, &[IS_CONNECTED, ROLE, STATUS]);
    }
    {
        use port::columns::*;
        selection.quiet(
            Port::TABLE,
            &[STATUS, STATISTICS, RSTP_STATUS, RSTP_STATISTICS, BOND_ACTIVE_SLAVE],
        );
    }
    {
        use interface::columns::*;
        let own = [
            OFPORT,
            ERROR,
            MAC_IN_USE,
            IFINDEX,
            ADMIN_STATE,
            LINK_STATE,
            LINK_RESETS,
            LINK_SPEED,
            DUPLEX,
            MTU,
            STATUS,
            STATISTICS,
            LACP_CURRENT,
            BFD_STATUS,
            CFM_FAULT,
            CFM_FAULT_STATUS,
            CFM_FLAP_COUNT,
            CFM_HEALTH,
            CFM_REMOTE_MPIDS,
            CFM_REMOTE_OPSTATE,
        ];
        selection.quiet(Interface::TABLE, &own);
    }
    let mut idl = Idl::new(DATABASE, selection, seed);
    idl.set_lock(LOCK);
    idl
}
