//! Names of the errors a UDP send can meet.

/// The symbolic name of an errno, or `errno N`.
pub(crate) fn name(code: i32) -> String {
    let known = match code {
        libc::EPERM => "EPERM",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EINVAL => "EINVAL",
        libc::EPIPE => "EPIPE",
        libc::EIO => "EIO",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::ENETDOWN => "ENETDOWN",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOTCONN => "ENOTCONN",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        other => return format!("errno {other}"),
    };
    known.to_owned()
}
