/* Tunnels of offloaded flows: outer headers are matched and removed, or put before packets. The
 * kernel's segments stay whole, and keep their size (BPF_F_ADJ_ROOM_FIXED_GSO).
 *
 * The layouts are those of dp::offload::InnerKind and OuterHeaders. */
#pragma once

/* Bytes of a tunnel's header with options. */
#define TUNNEL_LEN 40
/* Bytes of the header of VXLAN, and of Geneve without options. */
#define TUNNEL_FIXED 8
#define OPTIONS_LEN (TUNNEL_LEN - TUNNEL_FIXED)
/* Bytes of outer headers without options. */
#define OUTER_FIXED (IPV4_END + UDP_LEN + TUNNEL_FIXED)
#define UDP_LEN 8
#define IPV4_LEN 20
#define ETH_LEN 14
/* Most bytes of outer headers to add. */
#define OUTER_LEN 96
/* The longest IPv4 packet. */
#define IPV4_LONGEST 65535

/* What outer headers are, so that the kernel or the device can cut segments behind them. */
#define ADDED                                                                                     \
	(ADJ_ROOM_FIXED_GSO | ADJ_ROOM_ENCAP_IPV4 | ADJ_ROOM_ENCAP_UDP | ADJ_ROOM_ENCAP_ETHERNET | \
	 ADJ_ROOM_ENCAP_L2(ETH_LEN))

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

/* Flows out of tunnels. */
struct {
	MAP_NUMBER(type, MAP_HASH);
	MAP_TYPE(key, struct tunnel_kind);
	MAP_TYPE(value, struct flow);
	MAP_NUMBER(max_entries, FLOWS);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
} oxvs_tunnel_flows SEC(".maps");

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

/* The sum of an IPv4 header from an even offset on, as 16-bit words. */
INLINE u32 ipv4_sum(const u8 *header, u32 offset)
{
	u32 sum = 0;

	for (u32 n = offset; n < IPV4_LEN; n += 2)
		sum += __builtin_bswap16(u16_at(header, n));
	return sum;
}

INLINE u16 fold(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether the outer headers are those of a tunnel with a header like `header`, and right. Notes in
 * the kind whether there is a checksum of UDP.
 * A checksum of VXLAN is not verified, which is the receiver's choice (RFC 7348, section 5); that
 * of Geneve must be (RFC 8926, section 3.3). Where it is still to be filled in, the kernel would fill
 * it in after the header has gone; of segments it fills in that of the inner packet. */
INLINE int is_outer(struct __sk_buff *skb, u32 header, u8 *has_sum)
{
	/* An IPv4 header, a UDP header. */
	u8 headers[IPV4_LEN + UDP_LEN];

	if (skb_load_bytes(skb, IP, headers, sizeof(headers)) || fold(ipv4_sum(headers, 0)) != 0xffff)
		return 0;
	u32 len = __builtin_bswap16(u16_at(headers, 2)), udp_len = len - IPV4_LEN;
	if (len != skb->len - IP || __builtin_bswap16(u16_at(headers, IPV4_LEN + 4)) != udp_len)
		return 0;
	u16 sum = __builtin_bswap16(u16_at(headers, IPV4_LEN + 6));
	*has_sum = sum != 0;
	if (!sum)
		return 1;
	if (header != TUNNEL_HEADER_FIXED)
		return 0;
	return skb->gso_size || sum != fold(ipv4_sum(headers, 12) + UDP + udp_len);
}

/* Whether a segment is one of the inner TCP over IPv4, all of it. Others go through the worker:
 * several packets of the tunnel that their sender left to its device as one, where only the first
 * would lose its outer headers, and datagrams, which the kernel takes for a tunnel's when it cuts
 * them, although they have no outer headers any more. */
INLINE int is_inner_segment(struct __sk_buff *skb, u32 at, const u8 *inner)
{
	u16 total;

	if (inner[IP + 9] != TCP || skb_load_bytes(skb, at + IP + 2, &total, sizeof(total)))
		return 0;
	return __builtin_bswap16(total) == skb->len - at - IP;
}

/* The flow of a packet whose headers are those of a tunnel that ends here. */
INLINE struct flow *flow_out_of_tunnel(struct __sk_buff *skb, const struct kind *outer)
{
	u32 own = TUNNEL_FIXED;

	if (outer->headers[IP] != 0x45 || outer->headers[IP + 9] != UDP)
		return 0;
	u32 *header = map_lookup(&oxvs_tunnel_ports, outer->headers + IPV4_END + 2);
	if (!header)
		return 0;
	struct tunnel_kind kind = {};
	kind.outer = *outer;
	if (!is_outer(skb, *header, &kind.outer.headers[IPV4_END + 4]))
		return 0;
	if (skb_load_bytes(skb, IPV4_END + UDP_LEN, kind.tunnel, TUNNEL_FIXED))
		return 0;
	if (*header == TUNNEL_HEADER_OPTIONS) {
		u32 options = (kind.tunnel[0] & 0x3f) * 4;
		if (options > OPTIONS_LEN)
			return 0;
		/* As many bytes as verifiers of all kernels know, since an inner packet is longer. */
		if (skb_load_bytes(skb, IPV4_END + UDP_LEN + TUNNEL_FIXED, kind.tunnel + TUNNEL_FIXED, OPTIONS_LEN))
			return 0;
#pragma clang loop unroll(full)
		for (u32 n = 0; n < OPTIONS_LEN; n += 4) {
			if (n >= options)
				clear(kind.tunnel, TUNNEL_FIXED + n, 4);
		}
		own += options;
	}
	if (!read_headers(skb, IPV4_END + UDP_LEN + own, kind.inner))
		return 0;
	if (skb->gso_size && !is_inner_segment(skb, IPV4_END + UDP_LEN + own, kind.inner))
		return 0;
	return map_lookup(&oxvs_tunnel_flows, &kind);
}

/* Whether a packet with so many more bytes before it is one of IPv4, and its segments fit. */
INLINE int fits_outer(struct __sk_buff *skb, const struct kind *kind, const struct flow *flow)
{
	const u8 *headers = kind->headers;
	u32 segment, doff = 0, transport = headers[IP] == 0x45 ? IPV4_END : IPV6_END;
	u8 protocol = headers[IP] == 0x45 ? headers[IP + 9] : headers[IP + 6];

	if (skb->len + flow->push - ETH_LEN > IPV4_LONGEST)
		return 0;
	if (!skb->gso_size)
		return 1;
	if (protocol == TCP) {
		u8 words;
		if (skb_load_bytes(skb, transport + 12, &words, 1))
			return 0;
		doff = (words >> 4) * 4;
	} else if (protocol == UDP) {
		doff = UDP_LEN;
	} else {
		return 0;
	}
	segment = transport + doff + skb->gso_size;
	return segment <= flow->longest;
}

/* Removes the first `len` bytes of a packet, all before its inner Ethernet header. */
INLINE int remove_outer(struct __sk_buff *skb, u32 len)
{
	u8 ethernet[ETH_LEN];

	if (skb_load_bytes(skb, len, ethernet, ETH_LEN))
		return UNCHANGED;
	if (skb_adjust_room(skb, -(int)len, ADJ_ROOM_MAC, ADJ_ROOM_FIXED_GSO))
		return UNCHANGED;
	return skb_store_bytes(skb, 0, ethernet, ETH_LEN, 0) ? BROKEN : CHANGED;
}

/* Puts the outer headers of a flow before a packet. The kernel does not if the packet has been in a
 * tunnel of the kernel and is still marked so, or is a segment of a type that it cannot cut then. */
INLINE int add_outer(struct __sk_buff *skb, u32 number, u32 ticket)
{
	u8 ethernet[ETH_LEN];
	struct outer outer;
	struct outer *found = map_lookup(&oxvs_outer, &number);

	if (!found || found->ticket != ticket)
		return UNCHANGED;
	outer = *found;
	u32 len = outer.len, inner = skb->len;
	if (len < OUTER_FIXED || len > OUTER_LEN)
		return UNCHANGED;
	if (skb_load_bytes(skb, 0, ethernet, ETH_LEN))
		return UNCHANGED;
	if (skb_adjust_room(skb, len, ADJ_ROOM_MAC, ADDED))
		return UNCHANGED;
	u16 *total = (u16 *)(outer.headers + IP + 2), *sum = (u16 *)(outer.headers + IP + 10);
	u16 *udp_len = (u16 *)(outer.headers + IPV4_END + 4);
	*total = __builtin_bswap16(__builtin_bswap16(*total) + inner);
	*udp_len = __builtin_bswap16(__builtin_bswap16(*udp_len) + inner);
	*sum = __builtin_bswap16(~fold((u16)~__builtin_bswap16(*sum) + inner));
	/* A device's sum does not include the first Ethernet header. */
	if (skb_store_bytes(skb, 0, outer.headers, ETH_LEN, 0) ||
	    skb_store_bytes(skb, ETH_LEN, outer.headers + ETH_LEN, OUTER_FIXED - ETH_LEN, STORE_WITH_SUM))
		return BROKEN;
	/* Options, in pieces of a length that verifiers of all kernels know. */
	for (u32 n = OUTER_FIXED; n + 4 <= OUTER_LEN; n += 4) {
		if (n >= len)
			break;
		if (skb_store_bytes(skb, n, outer.headers + n, 4, STORE_WITH_SUM))
			return BROKEN;
	}
	if (skb_store_bytes(skb, len, ethernet, ETH_LEN, STORE_WITH_SUM))
		return BROKEN;
	return CHANGED;
}
