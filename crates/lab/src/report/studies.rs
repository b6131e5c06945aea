//! The studies, in a few sentences each.

/// A study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Study {
    /// As `S0`.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its method, and the comparable part.
    pub about: &'static str,
}

/// All studies, and the questions that they left open.
pub(crate) const STUDIES: &[Study] = &[
    Study {
        id: "S0",
        title: "Three switches, two VLANs: round trip, throughput, fairness",
        about: "The study sets a hardware switch (Cisco Catalyst 3750) beside two switches made of a PC (Open vSwitch 1.10, LiSA 2.0.1), on \
                links of 10 and 100 Mbit/s, with the router in the switch and on a stick. It shows its results as figures only, so there are no \
                printed numbers to stand beside ours; its findings are judged by what was measured here, as far as the switches are here. \
                Neither the Cisco switch nor LiSA can be run on this machine.",
    },
    Study {
        id: "S1",
        title: "TCP window against transfer, on physical and virtual gigabit links",
        about: "The study transfers data by TCP for 30 seconds with windows of 4 to 64 KB, ten times each, through hardware switches of three \
                vendors, between guests on one machine, through switches that a controller programs, through a bridged uplink and in Mininet.",
    },
    Study {
        id: "S2",
        title: "Isolation of VLANs, and stress under policing",
        about: "The study looks at who reaches whom through Open vSwitch in a Xen server with two VLANs, and at 10 to 70 concurrent netperf \
                streams through ports that are policed. It could not say where its packets and streams were lost. Here every loss has a place.",
    },
    Study {
        id: "S3",
        title: "Data planes under OpenFlow",
        about: "The study measures nine switches, of hardware and of software, under OpenFlow 1.0: delay by the type of match, by rewrite and by \
                the number of rules, how many rules fit, and how long statistics take under load. Its tables give 99 % confidence intervals of \
                the mean.",
    },
    Study {
        id: "S4",
        title: "Packet scheduling in virtual switches",
        about: "The study compares six schedulers on the ports of Open vSwitch and the Linux bridge, with hosts in containers and in virtual \
                machines, over a link of 100 Mbit/s: TCP throughput, TCP round trips, UDP jitter.",
    },
    Study {
        id: "S5",
        title: "What the studies left open",
        about: "Experiments that the studies name as future work, or lack: latency under load for each scheduler, scale, new flows, failover of \
                aggregated links, schedulers mixed, congestion controls. There is nothing published to compare with.",
    },
];

/// The section of a user's own experiments.
pub(crate) const OWN: Study = Study {
    id: "",
    title: "Experiments of your own",
    about: "Scenarios that are not part of the laboratory.",
};
