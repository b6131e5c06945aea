/* Connections of offloaded flows: packets of TCP that could change a connection, or are not within its
 * bounds, go to the worker; others are counted, and move the bounds. New headers are put into
 * packets that leave.
 *
 * The rules for bounds are those of the tracker, which says why they are as they are
 * (crates/conntrack/src/tcp.rs, `step` and `note_numbers`).
 *
 * Packets of one direction write one cache line, and those of the other another one. Where packets of
 * one direction pass on two processors at once, a bound may fall back to where it was for the
 * earlier one. The next packet moves it again.
 *
 * The layouts are those of crates/dp-ebpf/src/connections.rs. */
#pragma once

#define CONNECTIONS (FLOWS * CONNECTIONS_OF_FLOW)

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
/* How far an acknowledgment may be from what was seen. */
#define SKEW (0xffff + 1500)

/* What packets of a direction write. */
struct direction {
	/* The sequence number behind the last one that its side sent; in the low half the one up to
	 * which it lets its peer send. */
	u64 numbers;
	/* The largest window of its side, unscaled; 0 before the first numbers. */
	u64 window;
	u64 packets;
	/* Of IP packets. */
	u64 bytes;
	/* When the last one passed, in nanoseconds of the coarse monotonic clock. */
	u64 used;
	u64 unused[3];
};

/* The original direction, and that of replies. */
struct connection {
	struct direction directions[2];
};

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct connection);
	MAP_NUMBER(max_entries, CONNECTIONS);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
} oxvs_connections SEC(".maps");

/* Headers that packets of a flow leave with. */
struct headers {
	u32 ticket;
	u32 changed;
	/* What is to be added to checksums, as 16-bit words in network order: for all of IPv4's header,
	 * for addresses, and for ports. */
	u32 ip;
	u32 addresses;
	u32 ports;
	u8 headers[HEADERS];
};

/* What is changed; HEADERS_IPV6 says what the packets are. */
enum {
	HEADERS_ETHERNET = 1,
	/* TOS, TTL */
	HEADERS_IP = 2,
	HEADERS_ADDRESSES = 4,
	HEADERS_PORTS = 8,
	HEADERS_IPV6 = 16,
	HEADERS_UDP = 32,
};

/* New headers by the number of the flow. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct headers);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_headers SEC(".maps");

/* What is read of a packet of a connection. */
struct segment {
	u32 seq;
	u32 ack;
	/* Bytes of data. */
	u32 len;
	u32 window;
	u32 flags;
	/* Bytes of the IP packet. */
	u32 bytes;
};

/* Whether `a` is before `b` in sequence space. */
INLINE int before(u32 a, u32 b)
{
	return (int)(a - b) < 0;
}

/* Reads a packet of a flow. Returns 0 for one that contradicts itself. */
INLINE int read_segment(struct __sk_buff *skb, const struct flow *flow, struct segment *segment)
{
	/* Sequence number, acknowledgment, length and flags, window. */
	u32 words[3];
	u16 len;
	int v6 = flow->ip_len == IPV6_END - IP;
	u32 ip = v6 ? IPV6_END - IP : IPV4_END - IP;
	u32 at = flow->pop + IP;

	if (skb_load_bytes(skb, at + (v6 ? 4 : 2), &len, 2))
		return 0;
	segment->bytes = __builtin_bswap16(len) + (v6 ? ip : 0);
	if (!flow->connections[0].tcp) {
		/* The length of UDP. */
		if (skb_load_bytes(skb, at + ip + 4, &len, 2))
			return 0;
		len = __builtin_bswap16(len);
		return len >= UDP_LEN && len <= segment->bytes - ip;
	}
	if (skb_load_bytes(skb, at + ip + 4, words, sizeof(words)))
		return 0;
	u32 last = __builtin_bswap32(words[2]);
	segment->seq = __builtin_bswap32(words[0]);
	segment->ack = __builtin_bswap32(words[1]);
	segment->flags = last >> 16 & 0x3f;
	segment->window = last & 0xffff;
	segment->len = segment->bytes - ip - (last >> 28) * 4;
	return 1;
}

/* Whether a packet of TCP is within the bounds, and cannot change the connection. Moves the bounds if
 * so. */
INLINE int is_within(const struct segment *segment, const struct tracked *tracked,
		     volatile struct direction *own, volatile struct direction *peer)
{
	u64 own_numbers = own->numbers, peer_numbers = peer->numbers;
	u32 low = own_numbers >> 32, lets = own_numbers;
	u32 peer_low = peer_numbers >> 32, high = peer_numbers;
	u32 seq = segment->seq, end = seq + segment->len;

	if ((segment->flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK)
		return 0;
	if (seq == end)
		seq = end = low;
	if (tracked->checks) {
		int skew = peer_low - segment->ack;
		u32 reach = (u32)peer->window << (tracked->peer_shift & 15);
		if (before(high, end) || before(seq, low - reach))
			return 0;
		if (skew < -SKEW || skew > (int)((u32)SKEW << (tracked->shift & 15)))
			return 0;
	}
	u32 window = segment->window << (tracked->shift & 15);
	if (before(low, end))
		low = end;
	if (!before(segment->ack + window, lets))
		lets = segment->ack + (window ? window : 1);
	u64 numbers = (u64)low << 32 | lets;
	if (numbers != own_numbers)
		own->numbers = numbers;
	if (segment->window > own->window)
		own->window = segment->window;
	return 1;
}

/* Whether the packet may pass by the tracker, for all connections of its flow. Counts it if so, and
 * returns the bytes of the IP packet. */
INLINE u32 may_bypass(struct __sk_buff *skb, const struct flow *flow)
{
	struct segment segment = {};
	struct direction *sides[CONNECTIONS_OF_FLOW] = {};

	if (!read_segment(skb, flow, &segment))
		return 0;
#pragma clang loop unroll(full)
	for (u32 n = 0; n < CONNECTIONS_OF_FLOW; n++) {
		if (n >= flow->connection_count)
			break;
		const struct tracked *tracked = &flow->connections[n];
		struct connection *connection = map_lookup(&oxvs_connections, &tracked->number);
		if (!connection)
			return 0;
		struct direction *own = &connection->directions[tracked->reply & 1];
		struct direction *peer = &connection->directions[~tracked->reply & 1];
		if (tracked->tcp && !is_within(&segment, tracked, own, peer))
			return 0;
		sides[n] = own;
	}
#pragma clang loop unroll(full)
	for (u32 n = 0; n < CONNECTIONS_OF_FLOW; n++) {
		if (!sides[n])
			break;
		count(&sides[n]->packets, &sides[n]->bytes, segment.bytes);
		sides[n]->used = ktime_get_coarse_ns();
	}
	return segment.bytes;
}

/* Takes back what a packet has counted that the worker gets nevertheless. */
INLINE void uncount_bypassed(const struct note *note)
{
#pragma clang loop unroll(full)
	for (u32 n = 0; n < CONNECTIONS_OF_FLOW; n++) {
		if (n >= note->connection_count)
			break;
		const struct tracked *tracked = &note->connections[n];
		struct connection *connection = map_lookup(&oxvs_connections, &tracked->number);
		if (!connection)
			break;
		struct direction *own = &connection->directions[tracked->reply & 1];
		__sync_fetch_and_add(&own->packets, (u64)-1);
		__sync_fetch_and_add(&own->bytes, -(u64)note->bytes);
	}
}

/* Sets headers of a packet that begins at `at`. A checksum that is still to be filled in has a sum of
 * the pseudo header. */
INLINE int set_headers(struct __sk_buff *skb, const struct headers *headers, u32 at)
{
	u32 changed = headers->changed, ip = at + IP;
	const u8 *own = headers->headers;
	int v6 = changed & HEADERS_IPV6;
	u32 transport = at + (v6 ? IPV6_END : IPV4_END);
	u32 sum = transport + (changed & HEADERS_UDP ? 6 : 16);
	/* A UDP checksum of 0 is none. */
	u64 flags = changed & HEADERS_UDP ? L4_MANGLED_0 : 0;
	int failed = 0;

	if (changed & HEADERS_ETHERNET)
		failed |= skb_store_bytes(skb, at, own, ETH_TYPE, at ? STORE_WITH_SUM : 0) != 0;
	if (changed & HEADERS_IP) {
		if (v6) {
			/* No checksum in the packet changes with it, so a sum of the whole packet does. */
			failed |= skb_store_bytes(skb, ip + 7, own + IP + 7, 1, STORE_WITH_SUM) != 0;
		} else {
			failed |= skb_store_bytes(skb, ip + 1, own + IP + 1, 1, 0) != 0;
			failed |= skb_store_bytes(skb, ip + 8, own + IP + 8, 1, 0) != 0;
		}
	}
	if (changed & HEADERS_ADDRESSES) {
		failed |= l4_csum_replace(skb, sum, 0, headers->addresses, flags | L4_PSEUDO_HEADER) != 0;
		if (v6) {
			failed |= skb_store_bytes(skb, ip + 8, own + IP + 8, 32, 0) != 0;
			/* The kernel takes the change out of a sum of the whole packet, as is right for
			 * IPv4. Here the addresses and the checksum cancel each other. */
			csum_update(skb, headers->addresses);
		} else {
			failed |= skb_store_bytes(skb, ip + 12, own + IP + 12, 8, 0) != 0;
		}
	}
	if (!v6 && changed & (HEADERS_IP | HEADERS_ADDRESSES))
		failed |= l3_csum_replace(skb, ip + 10, 0, headers->ip, 0) != 0;
	if (changed & HEADERS_PORTS) {
		failed |= l4_csum_replace(skb, sum, 0, headers->ports, flags) != 0;
		failed |= skb_store_bytes(skb, transport, v6 ? own + IPV6_END : own + IPV4_END, 4, 0) != 0;
	}
	return failed ? -1 : 0;
}
