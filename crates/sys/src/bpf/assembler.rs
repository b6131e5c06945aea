//! Putting BPF programs together, instruction by instruction, with jumps to named places (RFC
//! 9669).

use super::Instruction;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A register.
#[derive(Clone, Copy)]
pub(super) struct R(pub(super) u8);

/// The register of results, and of a call's.
pub(super) const R0: R = R(0);
/// The first five hold a call's arguments, which it destroys.
pub(super) const R1: R = R(1);
pub(super) const R2: R = R(2);
pub(super) const R3: R = R(3);
pub(super) const R4: R = R(4);
/// These keep their value over calls.
pub(super) const R6: R = R(6);
pub(super) const R7: R = R(7);
pub(super) const R8: R = R(8);
pub(super) const R9: R = R(9);
/// The end of the stack, which is below.
pub(super) const FP: R = R(10);

/// How many bytes are loaded or stored.
#[derive(Clone, Copy)]
pub(super) enum Size {
    U8 = 0x10,
    U16 = 0x08,
    U32 = 0x00,
    U64 = 0x18,
}

/// When to jump, by a comparison of 64 bits without signs.
#[derive(Clone, Copy)]
pub(super) enum If {
    Eq = 0x10,
    Greater = 0x20,
    Ne = 0x50,
    Less = 0xa0,
}

/// What to do with a register and a number, in 64 bits.
#[derive(Clone, Copy)]
pub(super) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    Shl = 0x60,
    Shr = 0x70,
    Mov = 0xb0,
}

/// A program that is being written. A place is named by any text.
#[derive(Default)]
pub(super) struct Assembler {
    program: Vec<Instruction>,
    places: Vec<(&'static str, usize)>,
    /// Jumps that are to lead to a place.
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    fn push(&mut self, code: u8, dst: R, src: R, offset: i16, value: i32) {
        self.program.push(Instruction {
            code,
            registers: src.0 << 4 | dst.0,
            offset,
            value,
        });
    }

    /// `dst = dst operation value`
    pub(super) fn alu(&mut self, operation: Alu, dst: R, value: i32) {
        self.push(0x07 | operation as u8, dst, R0, 0, value);
    }

    /// `dst = dst operation src`
    pub(super) fn alu_reg(&mut self, operation: Alu, dst: R, src: R) {
        self.push(0x0f | operation as u8, dst, src, 0, 0);
    }

    /// `dst = src & 0xffff_ffff`
    pub(super) fn low_half(&mut self, dst: R, src: R) {
        self.push(0xbc, dst, src, 0, 0);
    }

    /// Two bytes that came from a packet, as a number.
    pub(super) fn network_u16(&mut self, dst: R) {
        self.push(0xdc, dst, R0, 0, 16);
    }

    /// `dst = *(base + offset)`
    pub(super) fn load(&mut self, size: Size, dst: R, base: R, offset: i16) {
        self.push(0x61 | size as u8, dst, base, offset, 0);
    }

    /// `*(base + offset) = src`
    pub(super) fn store(&mut self, size: Size, base: R, offset: i16, src: R) {
        self.push(0x63 | size as u8, base, src, offset, 0);
    }

    /// `*(base + offset) = value`
    pub(super) fn store_value(&mut self, size: Size, base: R, offset: i16, value: i32) {
        self.push(0x62 | size as u8, base, R0, offset, value);
    }

    /// `*(u64 *)(base + offset) += src`, in one piece.
    pub(super) fn atomic_add(&mut self, base: R, offset: i16, src: R) {
        self.push(0xdb, base, src, offset, 0);
    }

    /// Jumps where `dst` compares so with a number.
    pub(super) fn jump_if(&mut self, condition: If, dst: R, value: i32, to: &'static str) {
        self.jumps.push((self.program.len(), to));
        self.push(0x05 | condition as u8, dst, R0, 0, value);
    }

    /// Jumps where `dst` compares so with `src`.
    pub(super) fn jump_if_reg(&mut self, condition: If, dst: R, src: R, to: &'static str) {
        self.jumps.push((self.program.len(), to));
        self.push(0x0d | condition as u8, dst, src, 0, 0);
    }

    /// Jumps.
    pub(super) fn jump(&mut self, to: &'static str) {
        self.jumps.push((self.program.len(), to));
        self.push(0x05, R0, R0, 0, 0);
    }

    /// Names the place of the next instruction.
    pub(super) fn place(&mut self, name: &'static str) {
        self.places.push((name, self.program.len()));
    }

    /// `dst = map`
    pub(super) fn map(&mut self, dst: R, map: BorrowedFd<'_>) {
        self.push(0x18, dst, R(1), 0, map.as_raw_fd());
        self.push(0, R0, R0, 0, 0);
    }

    /// `dst = &map[0]`, of an array with one value.
    pub(super) fn only_value(&mut self, dst: R, map: BorrowedFd<'_>) {
        self.push(0x18, dst, R(2), 0, map.as_raw_fd());
        self.push(0, R0, R0, 0, 0);
    }

    /// `r0 = helper(r1, r2, r3, r4, r5)`
    pub(super) fn call(&mut self, helper: i32) {
        self.push(0x85, R0, R0, 0, helper);
    }

    /// `return r0`
    pub(super) fn exit(&mut self) {
        self.push(0x95, R0, R0, 0, 0);
    }

    /// The program, with its jumps.
    ///
    /// # Panics
    /// Where a jump leads to a place that has no name, or too far: whoever wrote the program has to
    /// mend it.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (from, name) in &self.jumps {
            let to = self.places.iter().find(|(place, _)| place == name);
            let (_, to) = to.unwrap_or_else(|| panic!("no place {name} in a BPF program"));
            let distance = *to as i64 - *from as i64 - 1;
            self.program[*from].offset = i16::try_from(distance).unwrap_or_else(|_| panic!("{name} is too far"));
        }
        self.program
    }
}
