/* Forwards the packets of offloaded flows from device to device.
 *
 * A packet that a device receives meets two programs, one right after the other on the same
 * processor:
 * - The filter of the device's packet socket looks for the packet's kind among the flows. If that
 *   flow is in force, it counts the packet, notes where it goes, and keeps it from the socket.
 * - The redirect on the device's ingress sends a packet that was noted, and drops any other: the
 *   socket has that.
 * So one place decides whether a worker gets the packet.
 *
 * A packet that a worker has must not be overtaken by the next one of its flow. So the redirect counts
 * those packets of known flows that the socket has got, the worker says up to which count it has sent
 * them, and a flow is forwarded here from the moment when both are the same.
 *
 * The layouts here are those of crates/dp-ebpf/src/lib.rs and of dp::PacketKind. */
#include "bpf.h"

#define FLOWS 8192
#define PORTS 1024
/* A power of two. */
#define EPOCHS (1 << 16)
#define EPOCHS_OF_FLOW 96
/* The list of epochs may end after every so many. */
#define EPOCHS_AT_ONCE 4
/* Most outputs of a flow. */
#define OUTPUTS 4
/* Most connections of a flow. */
#define CONNECTIONS_OF_FLOW 2
/* A value of `settled`. */
#define ANY ((u64)-1)

/* Offsets in a packet without a VLAN tag. */
#define ETH_TYPE 12
#define IP 14
#define IPV4_END (IP + 20)
#define IPV6_END (IP + 40)

#define TCP 6
#define UDP 17
#define ICMP 1
#define ICMPV6 58
#define ICMPV6_ECHO 128

/* Bytes of the headers of a kind. */
#define HEADERS (IPV6_END + 10)

/* What packets of a flow have in common; see dp::PacketKind. */
struct kind {
	/* The device it came in by. */
	u32 device;
	/* The tag that the kernel took out of it: TPID in network order above the TCI; 0 without. */
	u32 tag;
	u8 headers[HEADERS];
};

/* Where a packet goes. */
struct output {
	u32 device;
	/* The port it is counted for. */
	u32 port;
	/* The tag it leaves with, as in `struct kind`. */
	u32 tag;
};

/* A connection that packets of a flow belong to. */
struct tracked {
	u32 number;
	/* Whether they go in the reply direction. */
	u8 reply;
	u8 tcp;
	/* Whether numbers of TCP decide, and the shifts of windows of the sender and the receiver. */
	u8 checks;
	u8 shift;
	u8 peer_shift;
	u8 unused[3];
};

/* What is done with packets of a kind. */
struct flow {
	/* Its row of `counters`. */
	u32 number;
	u32 ticket;
	/* The port they are counted for as they come in. */
	u32 from;
	/* Longer ones go to the worker, unless the device cuts them. What is inside of outer headers
	 * counts, of flows into a tunnel and out of one. */
	u32 longest;
	/* Bytes of outer headers to remove, and to put before the packet; 0 for none. */
	u32 pop;
	u32 push;
	/* Whether those to put before have a checksum of UDP. */
	u32 sums;
	/* Whether packets get the new headers of the flow. */
	u32 new_headers;
	/* Bytes of the IP header, of a flow with connections. */
	u32 ip_len;
	u32 connection_count;
	/* All are of TCP, or none is. */
	struct tracked connections[CONNECTIONS_OF_FLOW];
	/* A multiple of EPOCHS_AT_ONCE. */
	u32 epoch_count;
	/* From 1 to OUTPUTS. */
	u32 output_count;
	struct output first;
	u32 epochs[EPOCHS_OF_FLOW];
	struct output others[OUTPUTS - 1];
};

struct flow_counters {
	/* The sum of its epochs with which it is in force. */
	u64 sum;
	/* Tells a flow from an earlier one with the same number. */
	u64 ticket;
	u64 packets;
	u64 bytes;
	/* When it last carried a packet, in nanoseconds of the coarse monotonic clock. */
	u64 used;
	/* Packets that the socket got, and one. */
	u64 given;
	/* The value of `given` up to which the worker has sent them all; ANY to forward at once. */
	u64 settled;
	/* Not 0 if the worker gets all its packets, because one could not be changed here. */
	u64 refused;
};

struct port_counters {
	u64 rx_packets;
	u64 rx_bytes;
	u64 tx_packets;
	u64 tx_bytes;
	/* Of flows with several outputs, with tunnels or with new headers. */
	u64 tx_dropped;
	u64 unused[3];
};

struct epochs {
	u64 of[EPOCHS];
};

/* What the filter tells the redirect about the packet that is on its way. */
struct note {
	/* The device it came in by; 0 if the socket has the packet. */
	u32 from;
	/* The tag it came with. */
	u32 tag;
	/* The number of its flow, and one, if the socket gets it. */
	u32 given;
	/* As those of its flow. */
	u32 pop;
	u32 push;
	u32 sums;
	/* By how much the segments that it is cut to have to be shorter. */
	u32 less;
	u32 new_headers;
	u32 number;
	u32 ticket;
	u32 from_port;
	u32 output_count;
	struct output outputs[OUTPUTS];
	u32 connection_count;
	struct tracked connections[CONNECTIONS_OF_FLOW];
	/* Bytes of the IP packet, if it has connections. */
	u32 bytes;
};

struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, struct kind);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_flows SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct flow_counters);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
} oxvs_counters SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct port_counters);
	MAP_NUMBER(max_entries, PORTS);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
} oxvs_ports SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct epochs);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
} oxvs_epochs SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct note);
	MAP_NUMBER(max_entries, 1);
} oxvs_note SEC(".maps");

INLINE u16 u16_at(const u8 *header, u32 offset)
{
	return *(const u16 *)(header + offset);
}

/* Sets `len` bytes to zero; both numbers are even. */
INLINE void clear(u8 *header, u32 offset, u32 len)
{
	for (u32 n = 0; n < len; n += 2)
		*(u16 *)(header + offset + n) = 0;
}

/* Whether a TCP header of legal length lies at `offset`, within `len` bytes. */
INLINE int has_tcp(struct __sk_buff *skb, u32 offset, u32 len)
{
	u8 words;

	if (skb_load_bytes(skb, offset + 12, &words, 1))
		return 0;
	u32 header = (words >> 4) * 4;
	return header >= 20 && header <= len;
}

/* Reads the headers of a packet that begins at `at`: TCP, UDP or ICMP in whole headers that follow
 * each other directly. They have all fields that a switch reads, except TCP's flags. Returns 0 for
 * other packets. */
INLINE int read_headers(struct __sk_buff *skb, u32 at, u8 *packet)
{
	u8 *transport;
	u32 room = skb->len - at, len;

	if (skb_load_bytes(skb, at, packet, IPV4_END + 4))
		return 0;
	if (u16_at(packet, ETH_TYPE) == __builtin_bswap16(0x0800)) {
		/* No options, no fragment. */
		if (packet[IP] != 0x45 || u16_at(packet, IP + 6) & __builtin_bswap16(0x3fff))
			return 0;
		len = __builtin_bswap16(u16_at(packet, IP + 2));
		if (len < 20 || len > room - IP)
			return 0;
		len -= 20;
		/* Total length, identification and fragment, checksum. */
		clear(packet, IP + 2, 6);
		clear(packet, IP + 10, 2);
		switch (packet[IP + 9]) {
		case TCP:
			return has_tcp(skb, at + IPV4_END, len);
		case UDP:
			return len >= 8;
		case ICMP:
			clear(packet, IPV4_END + 2, 2);
			return len >= 8;
		}
		return 0;
	}
	if (u16_at(packet, ETH_TYPE) != __builtin_bswap16(0x86dd))
		return 0;
	if (skb_load_bytes(skb, at + IPV4_END + 4, packet + IPV4_END + 4, IPV6_END - IPV4_END))
		return 0;
	len = __builtin_bswap16(u16_at(packet, IP + 4));
	if (len > room - IPV6_END)
		return 0;
	clear(packet, IP + 4, 2);
	switch (packet[IP + 6]) {
	case TCP:
		return has_tcp(skb, at + IPV6_END, len);
	case UDP:
		return len >= 8;
	case ICMPV6:
		/* Echo requests and replies; a switch reads more of neighbour discovery. */
		transport = packet + IPV6_END;
		clear(transport, 2, 2);
		return len >= 8 && (transport[0] & 0xfe) == ICMPV6_ECHO;
	}
	return 0;
}

/* Reads the kind of a packet. Returns 0 for packets without one. */
INLINE int read_kind(struct __sk_buff *skb, struct kind *kind)
{
	kind->device = skb->ifindex;
	if (skb->vlan_present)
		kind->tag = skb->vlan_proto << 16 | skb->vlan_tci;
	return read_headers(skb, 0, kind->headers);
}

#include "tunnel.h"

/* Whether nothing has changed that the flow depends on. */
INLINE int in_force(const struct flow *flow, volatile struct flow_counters *counters)
{
	u32 zero = 0;
	volatile struct epochs *epochs = map_lookup(&oxvs_epochs, &zero);

	if (!epochs)
		return 0;
	u64 sum = epochs->of[0];
#pragma clang loop unroll(full)
	for (u32 n = 0; n < EPOCHS_OF_FLOW; n++) {
		if (n % EPOCHS_AT_ONCE == 0 && flow->epoch_count == n)
			break;
		sum += epochs->of[flow->epochs[n] & (EPOCHS - 1)];
	}
	/* The ticket after the sum: a flow that has another's number has another ticket. */
	return counters->sum == sum && counters->ticket == flow->ticket;
}

/* Whether the worker has sent all packets of the flow that it got. */
INLINE int is_settled(volatile struct flow_counters *counters)
{
	u64 settled = counters->settled;

	return settled == counters->given || settled == ANY;
}

INLINE void count(u64 *packets, u64 *bytes, u64 len)
{
	__sync_fetch_and_add(packets, 1);
	__sync_fetch_and_add(bytes, len);
}

/* Counts a packet that a flow carries. */
INLINE void count_carried(struct flow_counters *counters, u32 from, u64 len)
{
	struct port_counters *port = map_lookup(&oxvs_ports, &from);

	count(&counters->packets, &counters->bytes, len);
	counters->used = ktime_get_coarse_ns();
	if (port)
		count(&port->rx_packets, &port->rx_bytes, len);
}

/* Counts a packet that leaves by an output, without the tag that it gets. */
INLINE void count_sent(const struct output *output, u64 len)
{
	struct port_counters *port = map_lookup(&oxvs_ports, &output->port);

	if (port)
		count(&port->tx_packets, &port->tx_bytes, len + (output->tag ? 4 : 0));
}

/* Counts a packet that an output does not send. */
INLINE void count_unsent(const struct output *output)
{
	struct port_counters *port = map_lookup(&oxvs_ports, &output->port);

	if (port)
		__sync_fetch_and_add(&port->tx_dropped, 1);
}

#include "connection.h"

/* Notes where the packet goes, and counts it, if it is of a flow in force. Returns whether it is. */
INLINE int forward(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct note *note = map_lookup(&oxvs_note, &zero);
	struct tunnel_kind *read = map_lookup(&oxvs_kind, &zero);

	if (!note || !read)
		return 0;
	struct kind *kind = &read->outer;
	*kind = (struct kind){};
	note->from = 0;
	note->given = 0;
	if (!read_kind(skb, kind))
		return 0;
	struct flow *flow = map_lookup(&oxvs_flows, kind);
	if (!flow)
		flow = flow_out_of_tunnel(skb, read);
	if (!flow)
		return 0;
	struct flow_counters *counters = map_lookup(&oxvs_counters, &flow->number);
	if (!counters)
		return 0;
	/* The worker gets all: it waits for none. */
	if (counters->refused)
		return 0;
	if (!in_force(flow, counters) || !is_settled(counters)) {
		note->given = flow->number + 1;
		return 0;
	}
	u64 len = skb->len;
	if (len - flow->pop > flow->longest && !skb->gso_size)
		return 0;
	u32 less = 0;
	int fits = flow->push ? fits_outer(skb, kind, flow, &less) : FITS;
	if (fits == IN_TURN)
		note->given = flow->number + 1;
	if (fits != FITS)
		return 0;
	/* What could change a connection is the worker's, and does not keep others from passing here:
	 * whoever can send such packets could keep them all from it. */
	if (flow->connection_count && !(note->bytes = may_bypass(skb, flow)))
		return 0;

	note->from = kind->device;
	note->tag = kind->tag;
	note->pop = flow->pop;
	note->push = flow->push;
	note->sums = flow->sums;
	note->less = less;
	note->new_headers = flow->new_headers;
	note->number = flow->number;
	note->ticket = flow->ticket;
	note->from_port = flow->from;
	note->output_count = flow->output_count;
	note->outputs[0] = flow->first;
	note->connection_count = flow->connection_count;
	note->connections[0] = flow->connections[0];
	note->connections[1] = flow->connections[1];
	/* The redirect counts packets whose headers change: it may give them to the worker. */
	int counts = !flow->pop && !flow->push && !flow->new_headers;
	if (counts)
		count_carried(counters, flow->from, len + (kind->tag ? 4 : 0));
	if (flow->output_count == 1) {
		if (counts)
			count_sent(&flow->first, len);
		return 1;
	}
	/* The redirect counts what it sends. */
#pragma clang loop unroll(full)
	for (u32 n = 1; n < OUTPUTS; n++) {
		if (n >= flow->output_count)
			break;
		note->outputs[n] = flow->others[n - 1];
	}
	return 1;
}

/* Counts the packet if it is of a known flow and the socket has it. */
INLINE void count_given(struct note *note)
{
	u32 number = note->given - 1;
	struct flow_counters *counters;

	if (!note->given)
		return;
	note->given = 0;
	counters = map_lookup(&oxvs_counters, &number);
	if (counters)
		__sync_fetch_and_add(&counters->given, 1);
}

/* Counts a packet of a flow whose headers have changed, or have not. It was so long without
 * its tag. */
INLINE void count_changed(const struct note *note, u64 len, int done)
{
	struct flow_counters *counters = map_lookup(&oxvs_counters, &note->number);

	if (counters && counters->ticket == note->ticket)
		count_carried(counters, note->from_port, len + (note->tag ? 4 : 0));
	if (done == CHANGED) {
		if (note->output_count == 1)
			count_sent(&note->outputs[0], len - note->pop + note->push);
		return;
	}
	for (u32 n = 0; n < OUTPUTS; n++) {
		if (n >= note->output_count)
			break;
		count_unsent(&note->outputs[n]);
	}
}

/* Returns how many bytes of the packet the socket gets: none or all. */
SEC("socket") int oxvs_offload(struct __sk_buff *skb)
{
	return forward(skb) ? 0 : -1;
}

/* The same for tests: only a program for an ingress is run on a packet that no device received. */
SEC("classifier") int oxvs_probe(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct note *note = map_lookup(&oxvs_note, &zero);
	int forwarded = forward(skb);

	if (note) {
		count_given(note);
		if (forwarded && (note->pop || note->push || note->new_headers))
			count_changed(note, skb->len, CHANGED);
	}
	return forwarded ? 0 : -1;
}

/* Gives a packet with the tag `has` another one, or none. */
INLINE int set_tag(struct __sk_buff *skb, u32 has, u32 tag)
{
	if (has == tag)
		return 0;
	if (has && skb_vlan_pop(skb))
		return -1;
	return tag ? skb_vlan_push(skb, tag >> 16, tag) : 0;
}

/* Sends a copy of the packet by each output, and counts those that a device does not take. */
INLINE void send_copies(struct __sk_buff *skb, const struct note *shared)
{
	/* Another packet may be on its way on this processor before all copies are sent. */
	struct note note = *shared;
	u64 len = skb->len;
	u32 has = note.tag;
	int failed = 0;

	for (u32 n = 0; n < OUTPUTS; n++) {
		if (n >= note.output_count)
			break;
		u32 tag = note.outputs[n].tag;
		failed = failed || set_tag(skb, has, tag);
		has = tag;
		long sent = failed ? -1 : clone_redirect(skb, note.outputs[n].device, 0);
		if (sent == NET_XMIT_SUCCESS || sent == NET_XMIT_CN)
			count_sent(&note.outputs[n], len);
		else
			count_unsent(&note.outputs[n]);
	}
}

/* Gives a packet to the worker that cannot be changed here, and all later ones of its flow: it comes
 * in once more, for the socket. */
INLINE int give_back(struct __sk_buff *skb, const struct note *note)
{
	struct flow_counters *counters = map_lookup(&oxvs_counters, &note->number);

	if (counters && counters->ticket == note->ticket)
		counters->refused = 1;
	uncount_bypassed(note);
	return redirect(skb->ifindex, REDIRECT_IN);
}

/* Changes the headers of a packet: removes outer headers or adds some, and then sets new ones, so that
 * a packet is unchanged where the kernel does not take the outer ones. It has no tag behind or before
 * those. */
INLINE int change_headers(struct __sk_buff *skb, const struct note *note)
{
	const struct headers *headers = 0;
	int done = CHANGED;

	if (note->new_headers) {
		headers = map_lookup(&oxvs_headers, &note->number);
		if (!headers || headers->ticket != note->ticket)
			return UNCHANGED;
	}
	if (note->pop)
		done = remove_outer(skb, note->pop);
	else if (note->push)
		done = note->less ? shorten_segments(skb, note->less) : CHANGED;
	if (done == CHANGED && note->push)
		done = add_outer(skb, note->number, note->ticket);
	if (done != CHANGED)
		return done;
	if (headers && set_headers(skb, headers, note->push))
		return BROKEN;
	if (note->sums && add_sum(skb, note->push))
		return BROKEN;
	if ((note->pop || note->push) && set_tag(skb, note->tag, 0))
		return BROKEN;
	return CHANGED;
}

/* Whether the kernel can add outer headers: returns 0 if it can. */
SEC("classifier") int oxvs_try_outer(struct __sk_buff *skb)
{
	return skb_adjust_room(skb, OUTER_FIXED, ADJ_ROOM_MAC, ADDED | ADJ_ROOM_ENCAP_IPV4) ? -1 : 0;
}

/* Whether the kernel can remove outer headers of IPv4 from a packet of IPv6: returns 0 if it can. */
SEC("classifier") int oxvs_try_mixed(struct __sk_buff *skb)
{
	return skb_adjust_room(skb, -OUTER_FIXED, ADJ_ROOM_MAC, ADJ_ROOM_FIXED_GSO | ADJ_ROOM_DECAP_IPV6) ? -1 : 0;
}

SEC("classifier") int oxvs_redirect(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct note *note = map_lookup(&oxvs_note, &zero);

	if (!note)
		return TC_ACT_SHOT;
	u32 from = note->from;
	note->from = 0;
	count_given(note);
	if (from != skb->ifindex)
		return TC_ACT_SHOT;
	if (note->pop || note->push || note->new_headers) {
		u32 len = skb->len;
		int done = change_headers(skb, note);
		if (done == UNCHANGED)
			return give_back(skb, note);
		count_changed(note, len, done);
		if (done == BROKEN)
			return TC_ACT_SHOT;
		if (note->pop || note->push)
			note->tag = 0;
	}
	if (note->output_count > 1) {
		send_copies(skb, note);
		return TC_ACT_SHOT;
	}
	if (set_tag(skb, note->tag, note->outputs[0].tag))
		return TC_ACT_SHOT;
	return redirect(note->outputs[0].device, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";
