//! Commands that answer in JSON too, for clients that ask for it (`ovs-appctl --format=json`),
//! with the members of Open vSwitch 3.5.

use crate::show;
use crate::state::State;
use mgmt::unixctl::Server;
use serde_json::{Map, Value, json};
use std::rc::Rc;
use tunnel::route::Origin;

pub(super) fn register(server: &Server, state: &Rc<State>) {
    let add = |name: &str, text: fn(&State) -> String, document: fn(&State) -> Value| {
        let state = state.clone();
        let answer = move |_: &[String]| Ok((text(&state), document(&state)));
        server.register_document(name, "", 0, 0, Box::new(answer));
    };
    add(
        "dpif/show",
        |state| show::dpif_show(state.dp(), &state.bridges.borrow()),
        datapaths,
    );
    add("ovs/route/show", super::route::show, routes);
}

/// `dpif/show`: datapaths by name, with their bridges and ports. Open vSwitch writes numbers as
/// strings here.
fn datapaths(state: &State) -> Value {
    let bridges = state.bridges.borrow();
    let stats = state.dp().cache_stats();
    let of_datapath = |name: &str| {
        let its = bridges.state().iter();
        let its = its.filter(|(bridge, _)| show::is_of(&bridges, bridge, name));
        let its = its.map(|(bridge, its)| (bridge.clone(), show::bridge_json(its)));
        json!({
            "bridges": its.collect::<Map<String, Value>>(),
            "stats": {
                "n_hit": (stats.exact_hits + stats.megaflow_hits).to_string(),
                "n_missed": stats.upcalls.to_string(),
            },
        })
    };
    let names = show::datapaths(&bridges).into_iter();
    Value::Object(
        names
            .map(|name| {
                let document = of_datapath(&name);
                (name, document)
            })
            .collect(),
    )
}

/// `ovs/route/show`: an array of routes.
fn routes(state: &State) -> Value {
    let mut routes = state.routes.borrow_mut();
    let documents = routes.table().routes().map(|route| {
        let mut hop = json!({"dev": route.hop.device});
        if let Some(gateway) = route.hop.gateway {
            hop["gateway"] = gateway.to_string().into();
        }
        let mut document = json!({
            "dst": route.to.host().to_string(),
            "local": route.origin == Origin::Cached { local: true },
            "nexthops": [hop],
            "prefix": route.to.len(),
            "prefsrc": route.hop.source.to_string(),
            "priority": route.rank(),
            "user": route.origin == Origin::User,
        });
        if route.mark != 0 {
            document["mark"] = route.mark.into();
        }
        document
    });
    documents.collect()
}
