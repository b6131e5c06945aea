//! How the filter puts a packet's key together.

use super::super::assembler::{Alu, Assembler, FP, If, R0, R1, R2, R3, R4, R6, R7, R8, R9, Size};
use super::KEY;

/// Where on the stack the key is, and in it the packet's first byte.
pub(super) const AT_KEY: i16 = -(KEY as i16);
const AT_PACKET: i16 = AT_KEY + 8;
/// Where the key of an array is, and a byte for other uses.
pub(super) const AT_NUMBER: i16 = AT_KEY - 4;
const AT_BYTE: i16 = AT_KEY - 8;

/// Where headers begin and end.
const IP: i16 = 14;
const IPV4_END: i16 = IP + 20;
const IPV6_END: i16 = IP + 40;

/// Offsets in `struct __sk_buff`.
const LEN: i16 = 0;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTO: i16 = 28;

const LOAD_BYTES: i32 = 26;

/// Copies bytes of the packet to their place; jumps where it has fewer.
fn copy(p: &mut Assembler, from: i16, to: i16) {
    p.alu_reg(Alu::Mov, R1, R6);
    p.alu(Alu::Mov, R2, from.into());
    p.alu_reg(Alu::Mov, R3, FP);
    p.alu(Alu::Add, R3, (AT_PACKET + from).into());
    p.alu(Alu::Mov, R4, (to - from).into());
    p.call(LOAD_BYTES);
    p.jump_if(If::Ne, R0, 0, "through the process");
}

/// With the packet in `R6`: puts its key together and leaves its length in `R9`. Jumps away with
/// what is not TCP, UDP or ICMP in whole headers that directly follow each other: there the key has
/// all that a switch reads of a packet, but for TCP's flags.
pub(super) fn put_key_together(p: &mut Assembler, port: u32) {
    p.store_value(Size::U32, FP, AT_KEY, port.cast_signed());
    p.store_value(Size::U32, FP, AT_KEY + 4, 0);
    p.load(Size::U32, R1, R6, VLAN_PRESENT);
    p.jump_if(If::Eq, R1, 0, "without a tag");
    p.load(Size::U32, R1, R6, VLAN_TCI);
    p.load(Size::U32, R2, R6, VLAN_PROTO);
    p.alu(Alu::Shl, R2, 16);
    p.alu_reg(Alu::Or, R1, R2);
    p.store(Size::U32, FP, AT_KEY + 4, R1);
    p.place("without a tag");
    copy(p, 0, IPV4_END + 4);
    p.load(Size::U32, R9, R6, LEN);
    p.load(Size::U16, R1, FP, AT_PACKET + 12);
    p.jump_if(If::Eq, R1, 0x0800_u16.to_be().into(), "IPv4");
    p.jump_if(If::Eq, R1, 0x86dd_u16.to_be().into(), "IPv6");
    p.jump("through the process");
    ipv4(p);
    ipv6(p);

    // With the offset of TCP's header in `R7` and the bytes from there on in `R8`.
    p.place("TCP");
    p.alu_reg(Alu::Mov, R1, R6);
    p.alu_reg(Alu::Mov, R2, R7);
    p.alu(Alu::Add, R2, 12);
    p.alu_reg(Alu::Mov, R3, FP);
    p.alu(Alu::Add, R3, AT_BYTE.into());
    p.alu(Alu::Mov, R4, 1);
    p.call(LOAD_BYTES);
    p.jump_if(If::Ne, R0, 0, "through the process");
    p.load(Size::U8, R1, FP, AT_BYTE);
    p.alu(Alu::Shr, R1, 4);
    p.alu(Alu::Shl, R1, 2);
    p.jump_if(If::Less, R1, 20, "through the process");
    p.jump_if_reg(If::Greater, R1, R8, "through the process");
    p.jump("key");

    p.place("UDP");
    p.jump_if(If::Less, R8, 8, "through the process");
    p.place("key");
}

fn ipv4(p: &mut Assembler) {
    p.place("IPv4");
    // Without options, and no fragment.
    p.load(Size::U8, R1, FP, AT_PACKET + IP);
    p.jump_if(If::Ne, R1, 0x45, "through the process");
    p.load(Size::U16, R1, FP, AT_PACKET + IP + 6);
    p.alu(Alu::And, R1, 0x3fff_u16.to_be().into());
    p.jump_if(If::Ne, R1, 0, "through the process");
    // Its length is at most that of the packet.
    p.load(Size::U16, R8, FP, AT_PACKET + IP + 2);
    p.network_u16(R8);
    p.alu_reg(Alu::Mov, R1, R9);
    p.alu(Alu::Sub, R1, IP.into());
    p.jump_if_reg(If::Greater, R8, R1, "through the process");
    p.jump_if(If::Less, R8, 20, "through the process");
    p.alu(Alu::Sub, R8, 20);
    // Length and identification, fragment, checksum; what IPv6 alone has.
    for at in [IP + 2, IP + 4, IP + 6, IP + 10, IPV4_END + 4] {
        p.store_value(Size::U16, FP, AT_PACKET + at, 0);
    }
    for at in [IPV4_END + 6, IPV4_END + 14, IPV4_END + 22] {
        p.store_value(Size::U64, FP, AT_PACKET + at, 0);
    }
    p.alu(Alu::Mov, R7, IPV4_END.into());
    by_protocol(p, IP + 9, 1);
    p.store_value(Size::U16, FP, AT_PACKET + IPV4_END + 2, 0);
    p.jump("key");
}

fn ipv6(p: &mut Assembler) {
    p.place("IPv6");
    copy(p, IPV4_END + 4, IPV6_END + 4);
    p.store_value(Size::U16, FP, AT_PACKET + IPV6_END + 4, 0);
    p.store_value(Size::U32, FP, AT_PACKET + IPV6_END + 6, 0);
    p.load(Size::U16, R8, FP, AT_PACKET + IP + 4);
    p.network_u16(R8);
    p.alu_reg(Alu::Mov, R1, R9);
    p.alu(Alu::Sub, R1, IPV6_END.into());
    p.jump_if_reg(If::Greater, R8, R1, "through the process");
    p.store_value(Size::U16, FP, AT_PACKET + IP + 4, 0);
    p.alu(Alu::Mov, R7, IPV6_END.into());
    by_protocol(p, IP + 6, 58);
    // Echo requests and replies; neighbour discovery has more that is looked at.
    p.load(Size::U8, R1, FP, AT_PACKET + IPV6_END);
    p.alu(Alu::And, R1, 0xfe);
    p.jump_if(If::Ne, R1, 128, "through the process");
    p.store_value(Size::U16, FP, AT_PACKET + IPV6_END + 2, 0);
    p.jump("key");
}

/// Goes on with ICMP, by its number, of eight bytes at least; jumps to TCP, to UDP, or away. `at`
/// is where the protocol's number is.
fn by_protocol(p: &mut Assembler, at: i16, icmp: i32) {
    p.load(Size::U8, R1, FP, AT_PACKET + at);
    p.jump_if(If::Eq, R1, 6, "TCP");
    p.jump_if(If::Eq, R1, 17, "UDP");
    p.jump_if(If::Ne, R1, icmp, "through the process");
    p.jump_if(If::Less, R8, 8, "through the process");
}
