//! Reads one flow as often as is asked, and prints it as often: what a profiler is put to.

use openflow::model::FlowCommand;
use openflow::text::{Names, Style, flow_mod, parse_flow, parse_flow_usable};
use std::hint::black_box;

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let times = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000u32);
    let text = args
        .next()
        .unwrap_or_else(|| "table=0,priority=100,ip,nw_src=10.1.2.0/24,nw_dst=10.3.4.5,actions=output:2".to_string());
    let names = Names::default();
    match parse_flow(FlowCommand::Add, &text, &names) {
        Ok(m) => {
            for _ in 0..times {
                match what.as_str() {
                    "print" => drop(black_box(flow_mod(black_box(&m), Style::PLAIN))),
                    "check" => drop(black_box(parse_flow_usable(FlowCommand::Add, black_box(&text), &names))),
                    _ => drop(black_box(parse_flow(FlowCommand::Add, black_box(&text), &names))),
                }
            }
        }
        Err(e) => println!("{e}"),
    }
}
