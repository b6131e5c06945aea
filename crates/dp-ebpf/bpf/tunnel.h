/* Tunnels of offloaded flows: outer headers are matched and removed, or put before packets. The
 * kernel's segments stay whole, and keep their size (BPF_F_ADJ_ROOM_FIXED_GSO).
 *
 * A segment has the checksum of UDP of each packet that is cut from it, since the kernel copies it: no
 * flag of bpf_skb_adjust_room asks for another one (SKB_GSO_UDP_TUNNEL_CSUM). So these packets have to
 * be of one length, and TCP's are made so.
 *
 * The layouts are those of dp::offload::InnerKind and OuterHeaders. */
#pragma once

/* Bytes of a tunnel's header with options. */
#define TUNNEL_LEN 40
/* Bytes of the header of VXLAN, and of Geneve without options. */
#define TUNNEL_FIXED 8
#define OPTIONS_LEN (TUNNEL_LEN - TUNNEL_FIXED)
#define UDP_LEN 8
#define IPV4_LEN 20
#define IPV6_LEN 40
#define ETH_LEN 14
/* Bytes of outer headers of IPv4 without options. */
#define OUTER_FIXED (IPV4_END + UDP_LEN + TUNNEL_FIXED)
/* Most bytes of options to add, and of outer headers. */
#define ADDED_OPTIONS 56
#define OUTER_LEN 128
/* The longest IPv4 packet. */
#define IPV4_LONGEST 65535

/* What outer headers are, so that the kernel or the device can cut segments behind them. */
#define ADDED \
	(ADJ_ROOM_FIXED_GSO | ADJ_ROOM_ENCAP_UDP | ADJ_ROOM_ENCAP_ETHERNET | ADJ_ROOM_ENCAP_L2(ETH_LEN))

enum { TUNNEL_HEADER_FIXED = 1, TUNNEL_HEADER_OPTIONS = 2 };

/* What has become of a packet whose outer headers are to change. */
enum { CHANGED, UNCHANGED, BROKEN };

/* The kind of a tunnel's packet. The byte behind the outer ports is 1 if there is a checksum. */
struct tunnel_kind {
	struct kind outer;
	u8 tunnel[TUNNEL_LEN];
	u8 inner[HEADERS];
};

/* Outer headers to add, around nothing. */
struct outer {
	u32 ticket;
	u32 len;
	u8 headers[OUTER_LEN];
};

#include "checksum.h"

/* Flows out of tunnels. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, struct tunnel_kind);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_tunnel_flows SEC(".maps");

/* Where the kind of a packet is read to: it is too large for the stack. */
struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct tunnel_kind);
	MAP_NUMBER(max_entries, 1);
} oxvs_kind SEC(".maps");

/* How long the headers of tunnels are, by UDP port in network order. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, u16);
	MAP_TYPE(value, u32);
	MAP_NUMBER(max_entries, 1 << 16);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_tunnel_ports SEC(".maps");

/* Outer headers of flows into tunnels, by the number of the flow. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct outer);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_outer SEC(".maps");

/* Where the transport header begins. */
INLINE u32 ip_end(u32 v6)
{
	return v6 ? IPV6_END : IPV4_END;
}

/* Whether the outer headers, up to those of UDP at `udp`, are right. Says in `has_sum` whether there
 * is a checksum of UDP. */
INLINE int is_outer(struct __sk_buff *skb, u32 v6, u8 *has_sum)
{
	u8 ip[IPV4_LEN];
	u16 words[UDP_LEN / 2];
	u32 udp = ip_end(v6), len;

	if (skb_load_bytes(skb, IP, ip, sizeof(ip)) || skb_load_bytes(skb, udp, words, sizeof(words)))
		return 0;
	if (v6) {
		len = __builtin_bswap16(u16_at(ip, 4));
	} else {
		u64 sum = 0;
#pragma clang loop unroll(full)
		for (u32 n = 0; n < IPV4_LEN; n += 2)
			sum += u16_at(ip, n);
		if (fold(sum) != 0xffff)
			return 0;
		len = __builtin_bswap16(u16_at(ip, 2)) - IPV4_LEN;
	}
	if (len != skb->len - udp || __builtin_bswap16(words[2]) != len)
		return 0;
	*has_sum = words[3] != 0;
	return 1;
}

/* Whether a segment is one of the inner TCP, all of it. Others go through the worker: several packets
 * of the tunnel that their sender left to its device as one, where only the first would lose its
 * outer headers, and datagrams, which the kernel takes for a tunnel's when it cuts them, although
 * they have no outer headers any more. */
INLINE int is_inner_segment(struct __sk_buff *skb, u32 at)
{
	struct ip_packet inner;

	return read_ip(skb, at + IP, &inner) && inner.protocol == TCP && inner.transport + inner.len == skb->len;
}

/* The flow of a packet whose headers are those of a tunnel that ends here. Its outer checksum is right,
 * if there is one; that of a segment is one that whoever cuts it fills in. */
INLINE struct flow *flow_out_of_tunnel(struct __sk_buff *skb, struct tunnel_kind *kind)
{
	struct kind *outer = &kind->outer;
	u32 own = TUNNEL_FIXED;
	u32 v6 = u16_at(outer->headers, ETH_TYPE) == __builtin_bswap16(0x86dd);
	u32 udp = ip_end(v6);
	u16 port = v6 ? u16_at(outer->headers, IPV6_END + 2) : u16_at(outer->headers, IPV4_END + 2);
	u8 has_sum = 0;

	if ((v6 ? outer->headers[IP + 6] : outer->headers[IP + 9]) != UDP)
		return 0;
	u32 *header = map_lookup(&oxvs_tunnel_ports, &port);
	if (!header)
		return 0;
	__builtin_memset(kind->tunnel, 0, TUNNEL_LEN);
	__builtin_memset(kind->inner, 0, HEADERS);
	if (!is_outer(skb, v6, &has_sum))
		return 0;
	if (v6)
		outer->headers[IPV6_END + 4] = has_sum;
	else
		outer->headers[IPV4_END + 4] = has_sum;
	if (skb_load_bytes(skb, udp + UDP_LEN, kind->tunnel, TUNNEL_FIXED))
		return 0;
	if (*header == TUNNEL_HEADER_OPTIONS) {
		u32 options = (kind->tunnel[0] & 0x3f) * 4;
		if (options > OPTIONS_LEN)
			return 0;
		/* As many bytes as verifiers of all kernels know, since an inner packet is longer. */
		if (skb_load_bytes(skb, udp + UDP_LEN + TUNNEL_FIXED, kind->tunnel + TUNNEL_FIXED, OPTIONS_LEN))
			return 0;
#pragma clang loop unroll(full)
		for (u32 n = 0; n < OPTIONS_LEN; n += 4) {
			if (n >= options)
				clear(kind->tunnel, TUNNEL_FIXED + n, 4);
		}
		own += options;
	}
	u32 inner = udp + UDP_LEN + own;
	if (!read_headers(skb, inner, kind->inner))
		return 0;
	if (skb->gso_size && !is_inner_segment(skb, inner))
		return 0;
	struct flow *flow = map_lookup(&oxvs_tunnel_flows, kind);
	if (flow && has_sum && !skb->gso_size && !is_udp_sum_right(skb, v6, inner + IP))
		return 0;
	return flow;
}

/* How a packet with so many more bytes before it can leave. */
enum { FITS, DOES_NOT_FIT, IN_TURN };

/* Most sizes of segments that are tried, and most bytes that adjust_room adds. */
#define EQUAL_TRIES 400
#define ADJ_ROOM_LONGEST 0xfff

/* The largest size of segments, from `size` down to an eighth of it, that divides `len`; 0 if there is
 * none. */
INLINE u32 equal_size(u32 len, u32 size)
{
	u32 count = (len + size - 1) / size;

#pragma clang loop unroll(disable)
	for (u32 n = 0; n < EQUAL_TRIES; n++) {
		if (!count || count * (size / 8) > len)
			break;
		if (len % count == 0)
			return len / count;
		count++;
	}
	return 0;
}

/* Whether a packet with so many more bytes before it is one of IP, and its segments fit. With a
 * checksum of UDP all segments of one have to be of one length; says in `less` by how much they have to
 * be shorter. Where they cannot be, the packet goes to the worker in its turn. */
INLINE int fits_outer(struct __sk_buff *skb, const struct kind *kind, const struct flow *flow, u32 *less)
{
	const u8 *headers = kind->headers;
	u32 doff = 0, transport = headers[IP] == 0x45 ? IPV4_END : IPV6_END;
	u8 protocol = headers[IP] == 0x45 ? headers[IP + 9] : headers[IP + 6];
	u32 size = skb->gso_size;
	u16 sum = 1;

	if (skb->len + flow->push - ETH_LEN > IPV4_LONGEST)
		return DOES_NOT_FIT;
	if (!size)
		return flow->sums && skb->len + flow->push > SUM_LONGEST ? DOES_NOT_FIT : FITS;
	if (protocol == TCP) {
		u8 words;
		if (skb_load_bytes(skb, transport + 12, &words, 1))
			return DOES_NOT_FIT;
		doff = (words >> 4) * 4;
	} else if (protocol == UDP) {
		doff = UDP_LEN;
		if (skb_load_bytes(skb, transport + 6, &sum, sizeof(sum)))
			return DOES_NOT_FIT;
	} else {
		return DOES_NOT_FIT;
	}
	if (transport + doff + size > flow->longest)
		return DOES_NOT_FIT;
	if (flow->sums) {
		u32 len = skb->len - transport - doff, equal = size;
		if (protocol == TCP)
			equal = equal_size(len, size);
		else if (!sum || len % size)
			return IN_TURN;
		*less = size - equal;
		if (!equal || *less > ADJ_ROOM_LONGEST)
			return IN_TURN;
	}
	return FITS;
}

/* Removes the first `len` bytes of a packet, all before its inner Ethernet header. */
INLINE int remove_outer(struct __sk_buff *skb, u32 len)
{
	u8 ethernet[ETH_LEN];
	u16 outer;
	u64 flags = ADJ_ROOM_FIXED_GSO;

	if (skb_load_bytes(skb, len, ethernet, ETH_LEN) || skb_load_bytes(skb, ETH_TYPE, &outer, sizeof(outer)))
		return UNCHANGED;
	if (u16_at(ethernet, ETH_TYPE) != outer)
		flags |= outer == __builtin_bswap16(0x86dd) ? ADJ_ROOM_DECAP_IPV4 : ADJ_ROOM_DECAP_IPV6;
	if (skb_adjust_room(skb, -(int)len, ADJ_ROOM_MAC, flags))
		return UNCHANGED;
	return skb_store_bytes(skb, 0, ethernet, ETH_LEN, 0) ? BROKEN : CHANGED;
}

/* Shortens the segments that a packet is cut to: the kernel does so where room is added. */
INLINE int shorten_segments(struct __sk_buff *skb, u32 less)
{
	if (skb_adjust_room(skb, less, ADJ_ROOM_MAC, 0))
		return UNCHANGED;
	return skb_adjust_room(skb, -(int)less, ADJ_ROOM_MAC, ADJ_ROOM_FIXED_GSO) ? BROKEN : CHANGED;
}

/* Puts the outer headers of a flow before a packet, without a checksum of UDP. The kernel does not if
 * the packet has been in a tunnel of the kernel and is still marked so, or is a segment of a type
 * that it cannot cut then. */
INLINE int add_outer(struct __sk_buff *skb, u32 number, u32 ticket)
{
	u8 ethernet[ETH_LEN], first[IPV6_END + UDP_LEN];
	struct outer *outer = map_lookup(&oxvs_outer, &number);

	if (!outer || outer->ticket != ticket)
		return UNCHANGED;
	u32 len = outer->len, inner = skb->len, v6 = outer->headers[IP] >> 4 == 6;
	u32 udp = ip_end(v6), tunnel = udp + UDP_LEN;
	if (len < OUTER_FIXED || len > OUTER_LEN)
		return UNCHANGED;
	if (skb_load_bytes(skb, 0, ethernet, ETH_LEN))
		return UNCHANGED;
	if (skb_adjust_room(skb, len, ADJ_ROOM_MAC, ADDED | (v6 ? ADJ_ROOM_ENCAP_IPV6 : ADJ_ROOM_ENCAP_IPV4)))
		return UNCHANGED;
	__builtin_memcpy(first, outer->headers, sizeof(first));
	/* A device's sum does not include the first Ethernet header. */
	if (skb_store_bytes(skb, 0, first, ETH_LEN, 0))
		return BROKEN;
	if (v6) {
		add_to(first + IP + 4, inner);
		add_to(first + IPV6_END + 4, inner);
		if (skb_store_bytes(skb, ETH_LEN, first + ETH_LEN, IPV6_LEN + UDP_LEN, STORE_WITH_SUM))
			return BROKEN;
	} else {
		u16 *sum = (u16 *)(first + IP + 10);
		add_to(first + IP + 2, inner);
		add_to(first + IPV4_END + 4, inner);
		*sum = ~fold((u64)(u16)~*sum + __builtin_bswap16(inner));
		if (skb_store_bytes(skb, ETH_LEN, first + ETH_LEN, IPV4_LEN + UDP_LEN, STORE_WITH_SUM))
			return BROKEN;
	}
	/* The tunnel's header and options, in pieces of a length that verifiers of all kernels know. */
	for (u32 n = 0; n < TUNNEL_FIXED + ADDED_OPTIONS; n += 4) {
		if (tunnel + n >= len)
			break;
		if (skb_store_bytes(skb, tunnel + n, outer->headers + tunnel + n, 4, STORE_WITH_SUM))
			return BROKEN;
	}
	if (skb_store_bytes(skb, len, ethernet, ETH_LEN, STORE_WITH_SUM))
		return BROKEN;
	return CHANGED;
}

/* Fills in the checksum of UDP of a packet that has got outer headers of `len` bytes.
 * Where the checksum of the inner packet is still to be filled in, that will make the sum of the inner
 * transport header and what follows the complement of that of its pseudo header, so the headers
 * before are enough ("local checksum offload"). That is so of a segment too, whose checksum is that
 * of each packet that is cut from it: they are of one length (`fits_outer`). */
INLINE int add_sum(struct __sk_buff *skb, u32 len)
{
	struct ip_packet outer, inner;
	u32 size = skb->gso_size, cut = 0, behind, own;

	if (!read_ip(skb, IP, &outer) || !read_ip(skb, len + IP, &inner))
		return -1;
	u32 udp = outer.transport, before = inner.transport - udp;
	if (size) {
		u8 words = 0;
		if (inner.protocol == TCP && skb_load_bytes(skb, inner.transport + 12, &words, 1))
			return -1;
		cut = inner.len - (inner.protocol == TCP ? (words >> 4) * 4 : UDP_LEN) - size;
	}
	u64 sum = sum_pseudo(skb, IP, outer.v6, UDP, outer.len - cut);
	if (size || is_unfilled(skb, &inner)) {
		own = sum_bytes(skb, udp, before);
		behind = (u16)~sum_pseudo(skb, inner.ip, inner.v6, inner.protocol, inner.len - cut);
		/* The length of UDP, and that of IPv6: the header of IPv4 has a checksum. */
		sum += (u64)(u16)~__builtin_bswap16(cut) * (inner.v6 ? 2 : 1);
	} else {
		own = sum_bytes(skb, udp, outer.len);
		behind = 0;
	}
	if (own == NO_SUM)
		return -1;
	u16 checksum = ~fold(sum + own + behind);
	/* 0 is none. */
	checksum = checksum ? checksum : 0xffff;
	return skb_store_bytes(skb, udp + 6, &checksum, sizeof(checksum), STORE_WITH_SUM) ? -1 : 0;
}
