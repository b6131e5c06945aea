//! Parts of fields: `NXM_NX_REG0[0..15]`, `reg0[3]`, `reg0`.

use super::TextError;
use crate::model::Subfield;
use flow::MatchField;

/// Reads a part of a field that is all of a text.
pub(super) fn parse(text: &str) -> Result<Subfield, TextError> {
    let (name, bits) = match text.split_once('[') {
        Some((name, bits)) => (name, Some(bits)),
        None => (text, None),
    };
    let field = MatchField::from_name(name).ok_or_else(|| bad(text, format!("unknown field `{name}'")))?;
    let width = field.significant_bits();
    let Some(bits) = bits else {
        return Ok(Subfield::whole(field));
    };
    let syntax = || bad(text, "syntax error expecting [] or [<bit>] or [<start>..<end>]".to_string());
    let bits = bits.strip_suffix(']').ok_or_else(syntax)?;
    if bits.is_empty() {
        return Ok(Subfield::whole(field));
    }
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| syntax());
    let (start, end) = match bits.split_once("..") {
        Some((start, end)) => (number(start)?, number(end)?),
        None => (number(bits)?, number(bits)?),
    };
    if start > end {
        return Err(bad(text, format!("starting bit {start} is after ending bit {end}")));
    }
    let outside = |which: &str, bit: u16| {
        bad(text, format!("{which} bit {bit} is not valid because field is only {width} bits wide"))
    };
    if u32::from(start) >= width {
        return Err(outside("starting", start));
    }
    Subfield::new(field, start, end - start + 1).ok_or_else(|| outside("ending", end))
}

fn bad(text: &str, what: String) -> TextError {
    TextError::Bits {
        text: text.to_string(),
        what,
    }
}
