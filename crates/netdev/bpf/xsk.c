/* Hands what a device receives to AF_XDP sockets, each queue's packets to the socket of that queue,
 * and drops what comes in by a queue without a socket. Twice, because the kernel wants to know
 * whether a program understands packets in several buffers (Linux 5.18). */
#include "bpf.h"

struct {
	MAP_NUMBER(type, MAP_XSKMAP);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
	/* As many as there are queues: set when it is loaded. */
	MAP_NUMBER(max_entries, 1);
} oxvs_sockets SEC(".maps");

SEC("xdp") int oxvs_xsk(struct xdp_md *packet)
{
	return redirect_map(&oxvs_sockets, packet->rx_queue_index, XDP_DROP);
}

SEC("xdp.frags") int oxvs_xsk_frags(struct xdp_md *packet)
{
	return redirect_map(&oxvs_sockets, packet->rx_queue_index, XDP_DROP);
}

char LICENSE[] SEC("license") = "Apache-2.0";
