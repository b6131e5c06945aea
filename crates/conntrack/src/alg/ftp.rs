//! The lines of FTP that announce data connections.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// What a line announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// The address, if the line has one.
    pub(super) address: Option<IpAddr>,
    /// The port.
    pub(super) port: u16,
    /// Where in the line both are.
    pub(super) text: Range<usize>,
    /// The delimiter of RFC 2428; `None` in lines of RFC 959.
    delimiter: Option<char>,
}

impl Announced {
    /// The text of another address and port in the same form.
    pub(super) fn with(&self, address: IpAddr, port: u16) -> Vec<u8> {
        let text = match (self.delimiter, self.address) {
            (Some(d), None) => format!("{d}{d}{d}{port}{d}"),
            (Some(d), Some(_)) => {
                let family = if address.is_ipv6() { 2 } else { 1 };
                format!("{d}{family}{d}{address}{d}{port}{d}")
            }
            (None, _) => {
                let [high, low] = port.to_be_bytes();
                format!("{},{high},{low}", address.to_string().replace('.', ","))
            }
        };
        text.into_bytes()
    }
}

/// Reads a line of the server (227: RFC 959 §4.1.2, 229: RFC 2428 §3), or of the client (PORT,
/// EPRT: RFC 2428 §2). `None` if it announces nothing.
pub(super) fn announced(line: &[u8], from_server: bool) -> Option<Announced> {
    let line = std::str::from_utf8(line).ok()?;
    let found = match from_server {
        true => match line.split_at_checked(4)? {
            ("227 ", text) => six(line, 4 + text.find(|c: char| c.is_ascii_digit())?),
            ("229 ", text) => {
                let inside = text.split_once('(')?.1.split_once(')')?.0;
                extended(line, inside).filter(|found| found.address.is_none())
            }
            _ => None,
        },
        false => {
            let (command, text) = line.split_once(' ')?;
            let text = text.trim();
            match command.to_ascii_uppercase().as_str() {
                "PORT" => six(line, place(line, text).start),
                "EPRT" => extended(line, text).filter(|found| found.address.is_some()),
                _ => None,
            }
        }
    };
    found.filter(|found| found.port != 0)
}

/// Where a part of a line is in it.
fn place(line: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(line.as_ptr().addr());
    start..start + part.len()
}

/// `h1,h2,h3,h4,p1,p2` at a place of a line.
fn six(line: &str, start: usize) -> Option<Announced> {
    let text = line.get(start..)?;
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ',')
        .unwrap_or(text.len());
    let mut numbers = text[..end].split(',');
    let mut bytes = [0; 6];
    for byte in &mut bytes {
        *byte = number(numbers.next()?)?;
    }
    let [a, b, c, d, high, low] = bytes;
    numbers.next().is_none().then_some(Announced {
        address: Some(Ipv4Addr::new(a, b, c, d).into()),
        port: u16::from_be_bytes([high, low]),
        text: start..start + end,
        delimiter: None,
    })
}

/// `|family|address|port|`, with any delimiter; family and address may be empty.
fn extended(line: &str, text: &str) -> Option<Announced> {
    let delimiter = text
        .chars()
        .next()
        .filter(|c| c.is_ascii_graphic() && !c.is_ascii_digit())?;
    let mut fields = text[1..].split(delimiter);
    let (family, address, port) = (fields.next()?, fields.next()?, fields.next()?);
    let address = match family {
        "" if address.is_empty() => None,
        "1" => Some(IpAddr::V4(address.parse().ok()?)),
        "2" => Some(IpAddr::V6(address.parse().ok()?)),
        _ => return None,
    };
    // The last delimiter ends the text.
    (fields.next() == Some("") && fields.next().is_none()).then_some(())?;
    Some(Announced {
        address,
        port: number(port)?,
        text: place(line, text),
        delimiter: Some(delimiter),
    })
}

/// A number of digits only.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, from_server: bool) -> Option<(String, u16)> {
        let found = announced(line.as_bytes(), from_server)?;
        Some((found.address.map(|a| a.to_string()).unwrap_or_default(), found.port))
    }

    #[test]
    fn lines_of_both_sides_are_read() {
        let v4 = |port| Some(("10.0.0.1".to_owned(), port));
        assert_eq!(read("227 Entering Passive Mode (10,0,0,1,4,5).", true), v4(1029));
        assert_eq!(read("227 =10,0,0,1,4,5", true), v4(1029));
        assert_eq!(
            read("229 Entering Extended Passive Mode (|||6446|)", true),
            Some((String::new(), 6446))
        );
        assert_eq!(read("port 10,0,0,1,4,5", false), v4(1029));
        assert_eq!(read("EPRT |1|10.0.0.1|6275|", false), v4(6275));
        assert_eq!(read("EPRT !2!fd00::1!6275!", false), Some(("fd00::1".to_owned(), 6275)));
    }

    #[test]
    fn another_address_and_port_take_the_place_of_the_old_ones() {
        let replaced = |line: &str, from_server, address: &str, port| {
            let found = announced(line.as_bytes(), from_server).expect("an announcement");
            let text = String::from_utf8(found.with(address.parse().unwrap(), port)).unwrap();
            format!("{}{text}{}", &line[..found.text.start], &line[found.text.end..])
        };
        let line = "227 Entering Passive Mode (10,0,0,1,4,5).";
        assert_eq!(
            replaced(line, true, "192.0.2.111", 1029),
            "227 Entering Passive Mode (192,0,2,111,4,5)."
        );
        assert_eq!(replaced("229 Ok (|||6446|)", true, "fd00::2", 7), "229 Ok (|||7|)");
        assert_eq!(
            replaced("PORT  10,0,0,1,4,5 ", false, "1.2.3.4", 256),
            "PORT  1,2,3,4,1,0 "
        );
        assert_eq!(
            replaced("EPRT |1|10.0.0.1|6275|", false, "1.2.3.4", 9),
            "EPRT |1|1.2.3.4|9|"
        );
        assert_eq!(
            replaced("EPRT !2!fd00::1!6275!", false, "fd00::2", 9),
            "EPRT !2!fd00::2!9!"
        );
    }

    #[test]
    fn anything_else_announces_nothing() {
        for line in [
            "",
            "227",
            "227 ",
            "227-(10,0,0,1,4,5)",
            "2270 (10,0,0,1,4,5)",
            "227 (10,0,0,1,4)",
            "227 (10,0,0,1,4,5,6)",
            "227 (10,0,0,256,4,5)",
            "227 (10,0,0,1,0,0)",
            "229 (|||0|)",
            "229 (|||65536|)",
            "229 |||7|",
            "229 (|||7)",
            "229 (|1|10.0.0.1|7|)",
            "500 227 (10,0,0,1,4,5)",
            " 227 (10,0,0,1,4,5)",
            "PORT 10,0,0,1,4,5",
        ] {
            assert_eq!(read(line, true), None, "{line}");
        }
        for line in [
            "PORT",
            "PORT 10,0,0,1,4",
            "PORT 10,0,0,1,4,5,6",
            "PORT 10,,0,1,4,5",
            "EPRT |1|fd00::1|7|",
            "EPRT |2|10.0.0.1|7|",
            "EPRT |1|10.0.0.1|7",
            "EPRT |1|10.0.0.1|7||",
            "EPRT 111.1",
            "XPORT 10,0,0,1,4,5",
            "227 (10,0,0,1,4,5)",
        ] {
            assert_eq!(read(line, false), None, "{line}");
        }
    }
}
