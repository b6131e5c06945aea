//! The lines of FTP that announce data connections.

use std::net::{IpAddr, Ipv4Addr};

/// What a line announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// The address, if the line has one.
    pub(super) address: Option<IpAddr>,
    /// The port.
    pub(super) port: u16,
}

/// Reads a line of the server (227: RFC 959 §4.1.2, 229: RFC 2428 §3), or of the client (PORT,
/// EPRT: RFC 2428 §2). `None` if it announces nothing.
pub(super) fn announced(line: &[u8], from_server: bool) -> Option<Announced> {
    let line = std::str::from_utf8(line).ok()?;
    let found = match from_server {
        true => match line.split_at_checked(4)? {
            ("227 ", text) => six(text.get(text.find(|c: char| c.is_ascii_digit())?..)?),
            ("229 ", text) => {
                let inside = text.split_once('(')?.1.split_once(')')?.0;
                let (address, port) = extended(inside)?;
                address.is_empty().then_some(Announced { address: None, port })
            }
            _ => None,
        },
        false => {
            let (command, text) = line.split_once(' ')?;
            match command.to_ascii_uppercase().as_str() {
                "PORT" => six(text.trim()),
                "EPRT" => {
                    let (address, port) = extended(text.trim())?;
                    Some(Announced {
                        address: Some(address.parse().ok()?),
                        port,
                    })
                }
                _ => None,
            }
        }
    };
    found.filter(|found| found.port != 0)
}

/// `h1,h2,h3,h4,p1,p2` at the beginning of a text.
fn six(text: &str) -> Option<Announced> {
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
    })
}

/// `|family|address|port|`, with any delimiter; family and address may be empty.
fn extended(text: &str) -> Option<(&str, u16)> {
    let delimiter = text
        .chars()
        .next()
        .filter(|c| c.is_ascii_graphic() && !c.is_ascii_digit())?;
    let mut fields = text[1..].split(delimiter);
    let (family, address, port) = (fields.next()?, fields.next()?, fields.next()?);
    let right = match family {
        "" => address.is_empty(),
        "1" => address.parse::<Ipv4Addr>().is_ok(),
        "2" => address.contains(':'),
        _ => false,
    };
    // The last delimiter ends the text.
    (right && fields.next() == Some("") && fields.next().is_none()).then_some(())?;
    Some((address, number(port)?))
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
