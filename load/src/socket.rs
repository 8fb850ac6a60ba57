//! UDP sockets as this generator wants them: bound and connected as asked,
//! buffers as large as the kernel grants, no fragmentation, and the payload
//! limit of the path known before the first datagram.
//!
//! A socket belongs to the network namespace of the thread that makes it;
//! every function here makes it on the calling thread.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::stop::POLL;

/// How large a socket buffer should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffer {
    /// As large as useful here: [`LARGE_SNDBUF`] or [`LARGE_RCVBUF`].
    #[default]
    Large,
    /// The kernel's default, left alone.
    Kernel,
    /// This many bytes.
    Bytes(usize),
}

/// Send buffer of [`Buffer::Large`], bytes. A small one closes the loop: the
/// sender blocks and the queue behind it never fills.
pub const LARGE_SNDBUF: usize = 8 << 20;
/// Receive buffer of [`Buffer::Large`], bytes.
pub const LARGE_RCVBUF: usize = 32 << 20;

/// A socket operation that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SocketError {
    /// No socket.
    #[error("cannot make a UDP socket: {0}; check `ulimit -n`")]
    Create(Errno),
    /// The local address cannot be had.
    #[error("cannot bind {addr}: {source}; {}", bind_advice(*source))]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
    /// No way to the target.
    #[error("cannot reach {addr}: {source}; {}", connect_advice(*source))]
    Connect {
        /// The target.
        addr: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
    /// Local and target address are of different families.
    #[error("{bind} and {target} are of different address families; give both as IPv4 or both as IPv6")]
    Family {
        /// The local address.
        bind: SocketAddr,
        /// The target.
        target: SocketAddr,
    },
    /// An option was refused.
    #[error("cannot set {option}: {source}; {advice}")]
    Option {
        /// Its name.
        option: &'static str,
        /// The kernel's answer.
        source: Errno,
        /// What to do.
        advice: &'static str,
    },
    /// The datagrams do not fit the path.
    #[error(
        "a payload of {size} B does not fit the path to {target}: its MTU is {mtu} B, which leaves {largest} B \
         after the IP and UDP headers; ask for {largest} B or less"
    )]
    TooLarge {
        /// The target.
        target: SocketAddr,
        /// Payload asked for, bytes.
        size: usize,
        /// The path's MTU, bytes.
        mtu: u32,
        /// The largest payload that fits, bytes.
        largest: usize,
    },
}

fn bind_advice(e: Errno) -> &'static str {
    match e {
        Errno::ADDRINUSE => "another socket has it: choose another port, or see `ss -ulpn`",
        Errno::ADDRNOTAVAIL => "no interface here has that address: see `ip addr`",
        Errno::ACCESS | Errno::PERM => "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one",
        _ => "check the address",
    }
}

fn connect_advice(e: Errno) -> &'static str {
    match e {
        Errno::NETUNREACH | Errno::HOSTUNREACH => {
            "no route: see `ip route get`, and that the interface is up"
        }
        Errno::ACCESS | Errno::PERM => "a broadcast address, or refused by a firewall",
        Errno::INVAL => "a link-local target needs its interface, as in [fe80::1%2]",
        _ => "check the address",
    }
}

/// A socket to send with.
#[derive(Debug)]
pub struct TxSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// Its local address.
    pub local: SocketAddr,
    /// SO_SNDBUF granted, as the kernel counts it (twice the usable bytes).
    pub sndbuf: usize,
    /// The path's MTU, bytes.
    pub mtu: u32,
}

/// What to make of a sending socket.
#[derive(Clone, Copy, Debug)]
pub struct TxOptions {
    /// Where to.
    pub target: SocketAddr,
    /// Local address; `None`: the kernel chooses.
    pub bind: Option<SocketAddr>,
    /// Connect it (else every datagram carries the address).
    pub connect: bool,
    /// Send buffer.
    pub sndbuf: Buffer,
    /// Payload, bytes.
    pub size: usize,
    /// Datagrams in one message (UDP GSO); 1 for none.
    pub segments: usize,
    /// Several sockets share the local port.
    pub share_port: bool,
}

/// Makes a sending socket.
///
/// # Errors
/// [`SocketError`] for an address that cannot be had or reached, and for a
/// payload the path does not carry.
pub fn sender(o: &TxOptions) -> Result<TxSocket, SocketError> {
    if let Some(bind) = o.bind.filter(|b| b.is_ipv4() != o.target.is_ipv4()) {
        return Err(SocketError::Family { bind, target: o.target });
    }
    let mtu = path_mtu(o.target, o.bind)?;
    let largest = largest_payload(o.target, mtu);
    if o.size > largest {
        return Err(SocketError::TooLarge { target: o.target, size: o.size, mtu, largest });
    }
    let fd = udp(o.target)?;
    if o.share_port {
        option("SO_REUSEPORT", sockopt::set_socket_reuseport(&fd, true))?;
    }
    let sndbuf = send_buffer(&fd, o.sndbuf)?;
    never_fragment(&fd, o.target)?;
    blocking_limit(&fd, sockopt::Timeout::Send)?;
    if let Some(addr) = o.bind {
        rustix::net::bind(&fd, &addr).map_err(|source| SocketError::Bind { addr, source })?;
    }
    if o.connect {
        connect(&fd, o.target)?;
    }
    if o.segments > 1 {
        let size = libc::c_int::try_from(o.size).unwrap_or(libc::c_int::MAX);
        set_udp_option(&fd, libc::UDP_SEGMENT, size).map_err(|source| SocketError::Option {
            option: "UDP_SEGMENT",
            source,
            advice: "UDP GSO needs Linux 4.18; leave it out",
        })?;
    }
    let local = local_addr(&fd, o.target);
    Ok(TxSocket { fd, local, sndbuf, mtu })
}

/// A socket to receive with.
#[derive(Debug)]
pub struct RxSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// Its local address.
    pub local: SocketAddr,
    /// SO_RCVBUF granted, as the kernel counts it (twice the usable bytes).
    pub rcvbuf: usize,
}

/// Makes a receiving socket; `gro` lets the kernel hand over several
/// datagrams of one flow as one message (Linux 5.0).
///
/// # Errors
/// [`SocketError`] for an address that cannot be had.
pub fn receiver(addr: SocketAddr, rcvbuf: Buffer, gro: bool) -> Result<RxSocket, SocketError> {
    let fd = udp(addr)?;
    let rcvbuf = receive_buffer(&fd, rcvbuf)?;
    blocking_limit(&fd, sockopt::Timeout::Recv)?;
    if gro {
        set_udp_option(&fd, libc::UDP_GRO, 1).map_err(|source| SocketError::Option {
            option: "UDP_GRO",
            source,
            advice: "it needs Linux 5.0; leave it out",
        })?;
    }
    rustix::net::bind(&fd, &addr).map_err(|source| SocketError::Bind { addr, source })?;
    let local = local_addr(&fd, addr);
    Ok(RxSocket { fd, local, rcvbuf })
}

/// Connects a receiving socket to the only sender it is to hear.
///
/// # Errors
/// [`SocketError::Connect`].
pub fn connect(fd: impl AsFd, addr: SocketAddr) -> Result<(), SocketError> {
    rustix::net::connect(fd, &addr).map_err(|source| SocketError::Connect { addr, source })
}

/// Datagrams this socket dropped itself (its receive buffer was full, or a
/// checksum was wrong), from SO_MEMINFO (Linux 4.12).
///
/// # Errors
/// The kernel's answer where it does not know the option.
pub fn drops(fd: impl AsFd) -> Result<u32, Errno> {
    // SK_MEMINFO_DROPS is the ninth and last of the values (linux/sock_diag.h).
    const DROPS: usize = 8;
    let mut info = [0_u32; DROPS + 1];
    let mut len = libc::socklen_t::try_from(size_of::<[u32; DROPS + 1]>()).unwrap_or(0);
    // SAFETY: `info` is valid for writes of `len` bytes, and `len` for a write
    // of its own; the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if rc == 0 { Ok(info[DROPS]) } else { Err(last_errno()) }
}

/// The largest UDP payload a path of this MTU carries unfragmented, bytes.
pub fn largest_payload(target: SocketAddr, mtu: u32) -> usize {
    // IP and UDP headers; and the 16-bit length field of the header that
    // counts itself (UDP in both, IP only in version 4).
    let (headers, most) = if target.is_ipv4() { (28, 65_535 - 28) } else { (48, 65_535 - 8) };
    usize::try_from(mtu).unwrap_or(0).saturating_sub(headers).min(most)
}

fn path_mtu(target: SocketAddr, bind: Option<SocketAddr>) -> Result<u32, SocketError> {
    let fd = udp(target)?;
    if let Some(mut addr) = bind {
        // Its own port: the route may depend on the address, the MTU on both.
        addr.set_port(0);
        rustix::net::bind(&fd, &addr).map_err(|source| SocketError::Bind { addr, source })?;
    }
    connect(&fd, target)?;
    let mtu = if target.is_ipv4() { sockopt::ip_mtu(&fd) } else { sockopt::ipv6_mtu(&fd) };
    mtu.map_err(|source| SocketError::Option {
        option: "IP_MTU",
        source,
        advice: "the path's MTU is unknown",
    })
}

fn udp(family_of: SocketAddr) -> Result<OwnedFd, SocketError> {
    let family = if family_of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))
        .map_err(SocketError::Create)
}

fn option(name: &'static str, r: Result<(), Errno>) -> Result<(), SocketError> {
    r.map_err(|source| SocketError::Option { option: name, source, advice: "this kernel does not allow it" })
}

fn never_fragment(fd: &OwnedFd, target: SocketAddr) -> Result<(), SocketError> {
    if target.is_ipv4() {
        option("IP_MTU_DISCOVER", sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::DO))
    } else {
        option("IPV6_MTU_DISCOVER", sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::DO))
    }
}

/// No call on the socket blocks for longer than a stop may take to be seen.
fn blocking_limit(fd: &OwnedFd, which: sockopt::Timeout) -> Result<(), SocketError> {
    option("SO_RCVTIMEO/SO_SNDTIMEO", sockopt::set_socket_timeout(fd, which, Some(POLL)))
}

fn send_buffer(fd: &OwnedFd, size: Buffer) -> Result<usize, SocketError> {
    let Some(bytes) = bytes_of(size, LARGE_SNDBUF) else {
        return sockopt::socket_send_buffer_size(fd).map_err(no_buffer);
    };
    // The forced one passes net.core.wmem_max and needs CAP_NET_ADMIN.
    if sockopt::set_socket_send_buffer_size_force(fd, bytes).is_err() {
        option("SO_SNDBUF", sockopt::set_socket_send_buffer_size(fd, bytes))?;
    }
    sockopt::socket_send_buffer_size(fd).map_err(no_buffer)
}

fn receive_buffer(fd: &OwnedFd, size: Buffer) -> Result<usize, SocketError> {
    let Some(bytes) = bytes_of(size, LARGE_RCVBUF) else {
        return sockopt::socket_recv_buffer_size(fd).map_err(no_buffer);
    };
    if sockopt::set_socket_recv_buffer_size_force(fd, bytes).is_err() {
        option("SO_RCVBUF", sockopt::set_socket_recv_buffer_size(fd, bytes))?;
    }
    sockopt::socket_recv_buffer_size(fd).map_err(no_buffer)
}

fn no_buffer(source: Errno) -> SocketError {
    SocketError::Option { option: "SO_SNDBUF/SO_RCVBUF", source, advice: "its size cannot be read" }
}

/// The kernel doubles what it is given and counts in `int`: half of that is
/// the most it can be asked for.
fn bytes_of(size: Buffer, large: usize) -> Option<usize> {
    match size {
        Buffer::Kernel => None,
        Buffer::Large => Some(large),
        Buffer::Bytes(n) => Some(n.min(1 << 30)),
    }
}

fn local_addr(fd: &OwnedFd, like: SocketAddr) -> SocketAddr {
    let unspecified: IpAddr =
        if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    rustix::net::getsockname(fd)
        .ok()
        .and_then(|a| SocketAddr::try_from(a).ok())
        .unwrap_or_else(|| SocketAddr::new(unspecified, 0))
}

fn set_udp_option(fd: &OwnedFd, name: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the value is a live c_int of exactly `len` bytes, only read.
    let rc = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, name, (&raw const value).cast(), len) };
    if rc == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The calling thread's errno.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(target: &str, size: usize) -> TxOptions {
        TxOptions {
            target: target.parse().unwrap(),
            bind: None,
            connect: true,
            sndbuf: Buffer::Kernel,
            size,
            segments: 1,
            share_port: false,
        }
    }

    #[test]
    fn a_payload_above_the_path_mtu_is_refused_with_the_mtu() {
        for target in ["127.0.0.1:9", "[::1]:9"] {
            assert!(sender(&to(target, 1472)).is_ok());
            let error = sender(&to(target, 70_000)).unwrap_err();
            let SocketError::TooLarge { mtu, largest, .. } = error else { panic!("{error}") };
            assert!(sender(&to(target, largest)).is_ok());
            assert!(matches!(sender(&to(target, largest + 1)), Err(SocketError::TooLarge { .. })));
            assert!(error.to_string().contains(&mtu.to_string()));
        }
    }

    #[test]
    fn headers_are_taken_off_the_mtu() {
        let v4 = "10.0.0.1:1".parse().unwrap();
        let v6 = "[fd00::1]:1".parse().unwrap();
        assert_eq!((largest_payload(v4, 1500), largest_payload(v6, 1500)), (1472, 1452));
        assert_eq!((largest_payload(v4, 65_536), largest_payload(v6, 65_536)), (65_507, 65_488));
    }

    #[test]
    fn a_taken_port_and_mixed_families_are_named() {
        let first = receiver("127.0.0.1:0".parse().unwrap(), Buffer::Kernel, false).unwrap();
        let error = receiver(first.local, Buffer::Kernel, false).unwrap_err().to_string();
        assert!(error.contains(&first.local.to_string()) && error.contains("another port"), "{error}");
        let mixed = TxOptions { bind: Some("[::1]:0".parse().unwrap()), ..to("127.0.0.1:9", 64) };
        assert!(matches!(sender(&mixed), Err(SocketError::Family { .. })));
    }

    #[test]
    fn the_buffer_granted_is_reported() {
        let plain = receiver("127.0.0.1:0".parse().unwrap(), Buffer::Bytes(65_536), false).unwrap();
        assert_eq!(plain.rcvbuf, 2 * 65_536);
        assert_eq!(drops(&plain.fd), Ok(0));
    }
}
