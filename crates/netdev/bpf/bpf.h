/* What programs need of the kernel's interface (bpf-helpers(7), RFC 9669): types, the members of
 * contexts that are read, helpers by number. It stands alone, so that an object depends on these
 * files and on clang, and on no kernel header that happens to be installed. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* A function with a stack frame of its own, which the verifier looks at once. */
#define FUNCTION __attribute__((noinline))
/* The compiler knows nothing of the value from here on. */
#define BARRIER(value) __asm__ volatile("" : "+r"(value))

/* A map's definition in BTF. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type) __typeof__(type) *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_XSKMAP = 17,

	/* An entry's memory is not used again before every program that found it has ended. */
	MAP_NO_PREALLOC = 1 << 0,
	/* A process can map the values into its memory. */
	MAP_MMAPABLE = 1 << 10,
};

enum { TC_ACT_SHOT = 2 };
/* Where there is to be room in a packet, and what for (BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_...). */
enum { ADJ_ROOM_MAC = 1 };
#define ADJ_ROOM_FIXED_GSO 1ull
#define ADJ_ROOM_ENCAP_IPV4 (1ull << 1)
#define ADJ_ROOM_ENCAP_IPV6 (1ull << 2)
#define ADJ_ROOM_ENCAP_UDP (1ull << 4)
/* Linux 5.13 */
#define ADJ_ROOM_ENCAP_ETHERNET (1ull << 6)
/* What is inside of headers of the other version of IP; Linux 6.3. */
#define ADJ_ROOM_DECAP_IPV4 (1ull << 7)
#define ADJ_ROOM_DECAP_IPV6 (1ull << 8)
#define ADJ_ROOM_ENCAP_L2(len) ((u64)(len) << 56)
/* A checksum over the packet that its device has computed follows the change
 * (BPF_F_RECOMPUTE_CSUM). */
#define STORE_WITH_SUM 1ull
/* The packet comes in by the device, and does not leave by it (BPF_F_INGRESS). */
#define REDIRECT_IN 1ull
/* How a checksum of a transport header changes (BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR). */
#define L4_PSEUDO_HEADER (1ull << 4)
#define L4_MANGLED_0 (1ull << 5)
/* What a device says of a packet that it takes. */
enum { NET_XMIT_SUCCESS = 0, NET_XMIT_CN = 2 };
enum { XDP_DROP = 1 };

/* A packet, for socket filters and tc. */
struct __sk_buff {
	u32 len;
	u32 unread0[4];
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 unread1[2];
	u32 ifindex;
	u32 unread2[33];
	u32 gso_size;
};
_Static_assert(__builtin_offsetof(struct __sk_buff, ifindex) == 40, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "as in linux/bpf.h");

/* A packet, for XDP. */
struct xdp_md {
	u32 unread[4];
	u32 rx_queue_index;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const skb_store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 len, u64 flags) = (void *)9;
static long (*const l3_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to, u64 size) = (void *)10;
static long (*const l4_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*const clone_redirect)(struct __sk_buff *skb, u32 ifindex, u64 flags) = (void *)13;
static long (*const skb_vlan_push)(struct __sk_buff *skb, u16 proto, u16 tci) = (void *)18;
static long (*const skb_vlan_pop)(struct __sk_buff *skb) = (void *)19;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static long (*const csum_update)(struct __sk_buff *skb, u32 change) = (void *)40;
static long (*const skb_adjust_room)(struct __sk_buff *skb, int len, u32 mode, u64 flags) = (void *)50;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
/* Linux 5.11 */
static u64 (*const ktime_get_coarse_ns)(void) = (void *)160;
