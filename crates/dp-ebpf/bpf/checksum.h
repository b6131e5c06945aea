/* Checksums of outer UDP headers. Sums are of 16-bit words as they lie in the packet (RFC 1071 §2 B). */
#pragma once

/* Bytes that are summed up at once, and how often. */
#define SUM_CHUNK 64
#define SUM_CHUNKS 160
/* The longest datagram that is summed up here. */
#define SUM_LONGEST (SUM_CHUNK * SUM_CHUNKS)
/* The packet is shorter or too long. */
#define NO_SUM ((u32)-1)

struct chunk {
	u32 words[SUM_CHUNK / 4];
};

/* Where bytes are summed up. */
struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct chunk);
	MAP_NUMBER(max_entries, 1);
} oxvs_chunk SEC(".maps");

/* What a sum depends on of an IP packet without options or extension headers. */
struct ip_packet {
	/* Where it begins, and its transport header. */
	u32 ip;
	u32 transport;
	u32 v6;
	u32 protocol;
	/* Bytes from the transport header on. */
	u32 len;
};

INLINE u16 fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Adds to a 16-bit number of a header. */
INLINE void add_to(u8 *number, u32 more)
{
	u16 *word = (u16 *)number;

	*word = __builtin_bswap16(__builtin_bswap16(*word) + more);
}

INLINE int read_ip(struct __sk_buff *skb, u32 ip, struct ip_packet *packet)
{
	u8 header[10];

	if (skb_load_bytes(skb, ip, header, sizeof(header)))
		return 0;
	packet->ip = ip;
	packet->v6 = header[0] >> 4 == 6;
	if (packet->v6) {
		packet->transport = ip + IPV6_END - IP;
		packet->protocol = header[6];
		packet->len = __builtin_bswap16(u16_at(header, 4));
	} else {
		packet->transport = ip + IPV4_END - IP;
		packet->protocol = header[9];
		packet->len = __builtin_bswap16(u16_at(header, 2)) - (IPV4_END - IP);
	}
	return 1;
}

/* The sum of the chunk. */
INLINE u64 sum_chunk(const struct chunk *chunk)
{
	u64 sum = 0;

#pragma clang loop unroll(full)
	for (u32 n = 0; n < SUM_CHUNK / 4; n++)
		sum += chunk->words[n];
	return sum;
}

/* The sum of `len` bytes of a packet. */
FUNCTION u32 sum_bytes(struct __sk_buff *skb, u32 at, u32 len)
{
	u32 zero = 0;
	struct chunk *chunk = map_lookup(&oxvs_chunk, &zero);
	u64 sum = 0;

	if (!chunk)
		return NO_SUM;
#pragma clang loop unroll(disable)
	for (u32 n = 0; n < SUM_CHUNKS && len >= SUM_CHUNK; n++) {
		if (skb_load_bytes(skb, at, chunk, SUM_CHUNK))
			return NO_SUM;
		sum += sum_chunk(chunk);
		at += SUM_CHUNK;
		len -= SUM_CHUNK;
	}
	if (len >= SUM_CHUNK)
		return NO_SUM;
	if (len) {
		u32 rest = len - 1;
		/* So that every verifier knows that it is from 1 to SUM_CHUNK. */
		BARRIER(rest);
		rest = (rest & (SUM_CHUNK - 1)) + 1;
		*chunk = (struct chunk){};
		if (skb_load_bytes(skb, at, chunk, rest))
			return NO_SUM;
		sum += sum_chunk(chunk);
	}
	return fold(sum);
}

/* The sum of the pseudo header of the IP packet at `ip`, with `len` bytes behind its header. */
FUNCTION u32 sum_pseudo(struct __sk_buff *skb, u32 ip, u32 v6, u32 protocol, u32 len)
{
	u32 addresses = v6 ? sum_bytes(skb, ip + 8, 32) : sum_bytes(skb, ip + 12, 8);

	return fold((u64)addresses + (u16)__builtin_bswap16(protocol) + (u16)__builtin_bswap16(len));
}

/* Whether the checksum of TCP or UDP of a packet is still to be filled in: it has the sum of the pseudo
 * header then. A right checksum that is the same by chance means the same, because what follows has the
 * sum that it will have then. */
INLINE int is_unfilled(struct __sk_buff *skb, const struct ip_packet *packet)
{
	u16 sum;

	if (packet->protocol != TCP && packet->protocol != UDP)
		return 0;
	if (skb_load_bytes(skb, packet->transport + (packet->protocol == TCP ? 16 : 6), &sum, sizeof(sum)))
		return 0;
	return sum == sum_pseudo(skb, packet->ip, packet->v6, packet->protocol, packet->len);
}

/* Whether the checksum of UDP is right, of a tunnel's packet with an inner IP packet at `inner`. If
 * the inner checksum is still to be filled in, it has to be right once that is. If the outer one is,
 * the kernel would do it after the header has gone: such a packet is for the worker. */
INLINE int is_udp_sum_right(struct __sk_buff *skb, u32 v6, u32 inner_ip)
{
	struct ip_packet inner;
	u32 udp = v6 ? IPV6_END : IPV4_END, len = skb->len - udp;
	u32 pseudo = sum_pseudo(skb, IP, v6, UDP, len);
	u16 sum;

	if (skb_load_bytes(skb, udp + 6, &sum, sizeof(sum)) || sum == pseudo || !read_ip(skb, inner_ip, &inner))
		return 0;
	if (is_unfilled(skb, &inner)) {
		u32 headers = sum_bytes(skb, udp, inner.transport - udp);
		u64 behind = (u16)~sum_pseudo(skb, inner.ip, inner.v6, inner.protocol, inner.len);
		if (headers != NO_SUM && fold(behind + pseudo + headers) == 0xffff)
			return 1;
	}
	u32 all = sum_bytes(skb, udp, len);
	return all != NO_SUM && fold((u64)pseudo + all) == 0xffff;
}
