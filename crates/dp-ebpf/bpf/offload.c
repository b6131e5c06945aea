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
 * The layouts here are those of crates/dp-ebpf/src/lib.rs and of dp::PacketKind. */
#include "bpf.h"

#define FLOWS 8192
#define PORTS 1024
/* A power of two. */
#define EPOCHS (1 << 16)
#define EPOCHS_OF_FLOW 32
/* The list of epochs may end after every so many. */
#define EPOCHS_AT_ONCE 4
/* Outputs before the last one. */
#define COPIES 3

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

/* What packets of a flow have in common; see dp::PacketKind. */
struct kind {
	/* The device it came in by. */
	u32 device;
	/* The tag that the kernel took out of it: TPID in network order above the TCI; 0 without. */
	u32 tag;
	u8 headers[IPV6_END + 10];
};

/* Where a packet leaves. */
struct output {
	u32 device;
	/* The port it is counted for. */
	u32 port;
	/* A tag to push before, as in `struct kind`, or POP. */
	u32 tag;
};

/* What is done with packets of a kind. */
struct flow {
	/* Its row of `counters`. */
	u32 number;
	u32 ticket;
	/* The port they came in by. */
	u32 from;
	/* Longer ones go to the worker, unless the device cuts them. */
	u32 longest;
	/* How many of `copies` there are; they leave before `last`. */
	u32 copy_count;
	struct output last;
	struct output copies[COPIES];
	/* A multiple of EPOCHS_AT_ONCE. */
	u32 epoch_count;
	u32 epochs[EPOCHS_OF_FLOW];
};

/* In the place of a tag; no tag has the TPID 0. */
#define POP 1

struct flow_counters {
	/* The sum of its epochs with which it is in force. */
	u64 sum;
	/* Tells a flow from an earlier one with the same number. */
	u64 ticket;
	u64 packets;
	u64 bytes;
	/* When it last carried a packet, in nanoseconds of the coarse monotonic clock. */
	u64 used;
	u64 unused[3];
};

struct port_counters {
	u64 rx_packets;
	u64 rx_bytes;
	u64 tx_packets;
	u64 tx_bytes;
	/* Copies that the device did not accept. */
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
	u32 copy_count;
	struct output last;
	struct output copies[COPIES];
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

/* Reads the kind of a packet: TCP, UDP or ICMP in whole headers that follow each other directly.
 * The kind has all fields that a switch reads, except TCP's flags. Returns 0 for other packets. */
INLINE int read_kind(struct __sk_buff *skb, struct kind *kind)
{
	u8 *packet = kind->headers, *transport;
	u32 room = skb->len, len;

	kind->device = skb->ifindex;
	if (skb->vlan_present)
		kind->tag = skb->vlan_proto << 16 | skb->vlan_tci;
	if (skb_load_bytes(skb, 0, packet, IPV4_END + 4))
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
			return has_tcp(skb, IPV4_END, len);
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
	if (skb_load_bytes(skb, IPV4_END + 4, packet + IPV4_END + 4, IPV6_END - IPV4_END))
		return 0;
	len = __builtin_bswap16(u16_at(packet, IP + 4));
	if (len > room - IPV6_END)
		return 0;
	clear(packet, IP + 4, 2);
	switch (packet[IP + 6]) {
	case TCP:
		return has_tcp(skb, IPV6_END, len);
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

INLINE void count(u64 *packets, u64 *bytes, u64 len)
{
	__sync_fetch_and_add(packets, 1);
	__sync_fetch_and_add(bytes, len);
}

/* Counts a packet of `len` bytes for the port it leaves by. Returns its length there. */
INLINE u64 count_sent(const struct output *output, u64 len)
{
	if (output->tag)
		len += output->tag == POP ? -4 : 4;
	struct port_counters *port = map_lookup(&oxvs_ports, &output->port);
	if (port)
		count(&port->tx_packets, &port->tx_bytes, len);
	return len;
}

/* Counts the packet and notes where it goes, if it is of a flow in force. Returns whether it is. */
INLINE int forward(struct __sk_buff *skb)
{
	struct kind kind = {};
	u32 zero = 0;
	struct note *note = map_lookup(&oxvs_note, &zero);

	if (!note)
		return 0;
	note->from = 0;
	if (!read_kind(skb, &kind))
		return 0;
	struct flow *flow = map_lookup(&oxvs_flows, &kind);
	if (!flow)
		return 0;
	struct flow_counters *counters = map_lookup(&oxvs_counters, &flow->number);
	if (!counters || !in_force(flow, counters))
		return 0;
	u64 len = skb->len;
	if (len > flow->longest && !skb->gso_size)
		return 0;

	note->from = kind.device;
	note->last = flow->last;
	note->copy_count = flow->copy_count;
	if (kind.tag)
		len += 4;
	count(&counters->packets, &counters->bytes, len);
	counters->used = ktime_get_coarse_ns();
	struct port_counters *port = map_lookup(&oxvs_ports, &flow->from);
	if (port)
		count(&port->rx_packets, &port->rx_bytes, len);
	for (u32 n = 0; n < COPIES && n < flow->copy_count; n++) {
		note->copies[n] = flow->copies[n];
		len = count_sent(&flow->copies[n], len);
	}
	count_sent(&flow->last, len);
	return 1;
}

/* Returns how many bytes of the packet the socket gets: none or all. */
SEC("socket") int oxvs_offload(struct __sk_buff *skb)
{
	return forward(skb) ? 0 : -1;
}

/* The same for tests: only a program for an ingress is run on a packet that no device received. */
SEC("classifier") int oxvs_probe(struct __sk_buff *skb)
{
	return forward(skb) ? 0 : -1;
}

/* Pushes or pops the tag of an output. Returns 0 if that is done. */
INLINE long change_tag(struct __sk_buff *skb, u32 tag)
{
	if (tag == POP)
		return skb_vlan_pop(skb);
	return tag ? skb_vlan_push(skb, tag >> 16, tag) : 0;
}

SEC("classifier") int oxvs_redirect(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct note *note = map_lookup(&oxvs_note, &zero);

	if (!note)
		return TC_ACT_SHOT;
	u32 from = note->from;
	note->from = 0;
	if (from != skb->ifindex)
		return TC_ACT_SHOT;
	struct output last = note->last;
	if (note->copy_count) {
		/* A device may hand a copy to another one's ingress at once, which writes the note. */
		struct note own = *note;

		for (u32 n = 0; n < COPIES && n < own.copy_count; n++) {
			struct output *copy = &own.copies[n];

			if (change_tag(skb, copy->tag))
				return TC_ACT_SHOT;
			if (clone_redirect(skb, copy->device, 0)) {
				struct port_counters *port = map_lookup(&oxvs_ports, &copy->port);

				if (port)
					__sync_fetch_and_add(&port->tx_dropped, 1);
			}
		}
	}
	if (change_tag(skb, last.tag))
		return TC_ACT_SHOT;
	return redirect(last.device, 0);
}

char LICENSE[] SEC("license") = "Apache-2.0";
