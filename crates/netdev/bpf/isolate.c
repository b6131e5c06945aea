/* Drops what a device hands to the host's stack. Packet sockets come first: they have it then. */
#include "bpf.h"

SEC("classifier") int oxvs_drop(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Apache-2.0";
