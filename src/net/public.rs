//! Which addresses belong to the public internet.
//!
//! A URL that somebody else chose must not lead into our own network. Whatever is not plainly public is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `address` is one that anybody on the internet could be asked at. An IPv6 address that stands for an
/// IPv4 one (mapped, compatible, 6to4, NAT64, Teredo) is judged by what it stands for.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match (a, b, c) {
        // This network, private use, loopback, multicast and what lies above it.
        (0 | 10 | 127 | 224..=255, _, _) => true,
        // Shared address space (carrier-grade NAT), private use, link local, private use.
        (100, 64..=127, _) | (172, 16..=31, _) | (169, 254, _) | (192, 168, _) => true,
        // Protocol assignments, the 6to4 relays, and three blocks for documentation.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) => true,
        // Benchmarks.
        (198, 18..=19, _) => true,
        _ => false,
    };
    !reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match parts {
        // Mapped, translated (SIIT), and the well-known prefix of NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(v4(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => is_public_v4(v4(high, low)),
        // Teredo (it hides the client's address inverted), documentation, ORCHID, and the other special blocks.
        [0x2001, second, ..] if second < 0x0200 || second == 0x0db8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Only 2000::/3 is handed out to the internet.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plainly_public_is_public() {
        for public in [
            "1.1.1.1",
            "100.63.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "2606:4700::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.1.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:c0a8:1::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:db8::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
