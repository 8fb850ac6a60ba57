//! What to observe, in the words of the command line, turned into what the
//! programs compare: names become numbers here, once, and a name that means
//! nothing is an error before anything is attached.

use std::{
    fs, io,
    net::IpAddr,
    num::NonZeroU32,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use observer_ebpf::abi::Settings;

use crate::{
    correlate::pair::{DeviceId, Pair},
    kernel::attach::cgroup2_root,
};

/// Restrictions; all that are given must hold, at either end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// UDP port of either socket.
    pub port: Option<u16>,
    /// Device that datagrams leave through first.
    pub dev: Option<String>,
    /// Network namespace: a name under /run/netns, a path, or a process id.
    pub netns: Option<String>,
    /// Process (thread group).
    pub pid: Option<NonZeroU32>,
    /// Cgroup directory, absolute or below the cgroup2 tree.
    pub cgroup: Option<PathBuf>,
    /// Address of either socket.
    pub addr: Option<IpAddr>,
}

/// A restriction that names something which does not exist.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// No such device.
    #[error("no network device {name}{place}; `ip link` lists them")]
    Device {
        /// As given.
        name: String,
        /// " in namespace …", or nothing.
        place: String,
    },
    /// No such namespace.
    #[error(
        "no network namespace {name}: {source}; give a name from `ip netns list`, a path such as \
         /proc/1234/ns/net, or a process id"
    )]
    Namespace {
        /// As given.
        name: String,
        /// Why it could not be looked up.
        source: io::Error,
    },
    /// Not two devices.
    #[error("{text:?} is no pair of devices; give ENTRY:EXIT, each DEV or NETNS/DEV, as in tun0:blue/tun0")]
    Pair {
        /// As given.
        text: String,
    },
    /// No such process.
    #[error("no process {pid}")]
    Process {
        /// As given.
        pid: u32,
    },
    /// No such cgroup.
    #[error("no cgroup {name}: {source}; cgroups of version 2 only, as a path below {root}")]
    Cgroup {
        /// As given.
        name: String,
        /// Where the tree is.
        root: String,
        /// Why it could not be looked up.
        source: io::Error,
    },
}

impl Filter {
    /// Enters the restrictions into `settings`.
    ///
    /// # Errors
    ///
    /// [`FilterError`] for a name that means nothing on this host.
    pub fn apply(&self, settings: &mut Settings) -> Result<(), FilterError> {
        settings.port = self.port.map_or(0, u32::from);
        let namespace = self.netns.as_deref().map(open_namespace).transpose()?;
        if let Some((_, inode)) = &namespace {
            settings.netns = *inode;
        }
        if let Some(name) = &self.dev {
            settings.ifindex = device(name, namespace.as_ref().map(|(file, _)| file), self.netns.as_deref())?;
            if namespace.is_none() {
                // Interface numbers mean something in one namespace only.
                settings.netns = open_namespace(OWN_NAMESPACE)?.1;
            }
        }
        if let Some(pid) = self.pid {
            if !Path::new(&format!("/proc/{pid}")).exists() {
                return Err(FilterError::Process { pid: pid.get() });
            }
            settings.tgid = pid.get();
        }
        if let Some(path) = &self.cgroup {
            (settings.cgroup, settings.cgroup_level) = cgroup_id(path)?;
        }
        if let Some(addr) = self.addr {
            (settings.addr, settings.addr_version) = match addr {
                IpAddr::V4(v4) => {
                    let mut bytes = [0; 16];
                    bytes[..4].copy_from_slice(&v4.octets());
                    (bytes, 4)
                }
                IpAddr::V6(v6) => (v6.octets(), 6),
            };
        }
        Ok(())
    }
}

/// A device as `DEV`, in the caller's namespace, or `NETNS/DEV`, with the
/// namespace's name, path or process id.
///
/// # Errors
///
/// [`FilterError`] if one or the other does not exist.
pub fn device_id(text: &str) -> Result<DeviceId, FilterError> {
    let (place, name) = match text.rsplit_once('/') {
        Some((place, name)) => (Some(place), name),
        None => (None, text),
    };
    let (file, netns) = open_namespace(place.unwrap_or(OWN_NAMESPACE))?;
    Ok(DeviceId { netns, ifindex: device(name, place.map(|_| &file), place)? })
}

/// The ends of a shaper as `ENTRY:EXIT`, each as for [`device_id`].
///
/// # Errors
///
/// [`FilterError::Pair`] for another form, else as [`device_id`].
pub fn pair(text: &str) -> Result<Pair, FilterError> {
    let (entry, exit) = text.split_once(':').ok_or_else(|| FilterError::Pair { text: text.to_owned() })?;
    Ok(Pair { entry: device_id(entry)?, exit: device_id(exit)? })
}

const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// File-system type of namespaces (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// Opens a network namespace by name, path or process id; with its inode
/// number, by which sockets know it.
fn open_namespace(name: &str) -> Result<(fs::File, u32), FilterError> {
    let path = if name.contains('/') {
        PathBuf::from(name)
    } else if name.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() {
        PathBuf::from(format!("/proc/{name}/ns/net"))
    } else {
        Path::new("/run/netns").join(name)
    };
    let open = || {
        let file = fs::File::open(&path)?;
        if rustix::fs::fstatfs(&file)?.f_type != NSFS_MAGIC {
            return Err(io::Error::other("that is not a namespace"));
        }
        let inode = u32::try_from(file.metadata()?.ino()).map_err(io::Error::other)?;
        Ok((file, inode))
    };
    open().map_err(|source| FilterError::Namespace { name: name.to_owned(), source })
}

/// Index of a device, in `namespace` or in ours.
fn device(name: &str, namespace: Option<&fs::File>, place: Option<&str>) -> Result<u32, FilterError> {
    let index = match namespace {
        None => interface_index(name),
        // A thread of its own enters the namespace and ends there.
        Some(file) => std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    use rustix::{
                        fd::AsFd,
                        thread::{LinkNameSpaceType, move_into_link_name_space},
                    };
                    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
                    interface_index(name)
                })
                .join()
                .unwrap_or(None)
        }),
    };
    index.ok_or_else(|| FilterError::Device {
        name: name.to_owned(),
        place: place.map(|p| format!(" in namespace {p}")).unwrap_or_default(),
    })
}

pub(crate) fn interface_index(name: &str) -> Option<u32> {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(socket, name).ok().filter(|index| *index != 0)
}

/// A cgroup's id is the inode number of its directory; with its depth below
/// the root.
fn cgroup_id(path: &Path) -> Result<(u64, u32), FilterError> {
    let root = cgroup2_root();
    let failed = |source| FilterError::Cgroup {
        name: path.display().to_string(),
        root: root.as_ref().map_or_else(|| "(not mounted)".to_owned(), |r| r.display().to_string()),
        source,
    };
    let Some(root_path) = &root else {
        return Err(failed(io::Error::other("no cgroup2 tree is mounted")));
    };
    let full = if path.starts_with(root_path) {
        path.to_path_buf()
    } else {
        root_path.join(path.strip_prefix("/").unwrap_or(path))
    };
    let metadata =
        fs::metadata(full.join("cgroup.procs")).and_then(|_| fs::metadata(&full)).map_err(failed)?;
    let depth = full.strip_prefix(root_path).map_or(0, |below| below.components().count());
    Ok((metadata.ino(), u32::try_from(depth).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(filter: &Filter) -> Result<Settings, String> {
        let mut settings = Settings::UNSET;
        filter.apply(&mut settings).map(|()| settings).map_err(|e| e.to_string())
    }

    #[test]
    fn no_restriction_leaves_every_filter_open() {
        assert_eq!(apply(&Filter::default()), Ok(Settings::UNSET));
    }

    #[test]
    fn names_become_numbers() {
        let filter = Filter {
            port: Some(9000),
            dev: Some("lo".to_owned()),
            netns: Some(std::process::id().to_string()),
            pid: NonZeroU32::new(std::process::id()),
            addr: Some("10.0.0.7".parse().unwrap()),
            ..Filter::default()
        };
        let settings = apply(&filter).unwrap();
        assert_eq!((settings.port, settings.ifindex, settings.tgid), (9000, 1, std::process::id()));
        assert!(settings.netns > 0);
        assert_eq!((settings.addr_version, &settings.addr[..5]), (4, &[10, 0, 0, 7, 0][..]));
    }

    #[test]
    fn names_that_mean_nothing_are_refused_with_advice() {
        let none = Filter::default();
        for (filter, says) in [
            (
                Filter { dev: Some("no-such-dev".into()), ..none.clone() },
                "no network device no-such-dev; `ip link`",
            ),
            (Filter { netns: Some("no-such-ns".into()), ..none.clone() }, "no network namespace no-such-ns:"),
            (Filter { netns: Some("../x".into()), ..none.clone() }, "no network namespace ../x:"),
            (Filter { netns: Some("/".into()), ..none.clone() }, "no network namespace /: that is not"),
            (Filter { netns: Some(String::new()), ..none.clone() }, "no network namespace :"),
            (Filter { pid: NonZeroU32::new(u32::MAX), ..none.clone() }, "no process 4294967295"),
            (Filter { cgroup: Some("no/such".into()), ..none.clone() }, "no cgroup no/such:"),
        ] {
            let error = apply(&filter).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn pairs_name_devices_in_namespaces() {
        let own = open_namespace(OWN_NAMESPACE).unwrap().1;
        let lo = DeviceId { netns: own, ifindex: 1 };
        assert_eq!(device_id("lo").unwrap(), lo);
        let pid = std::process::id();
        for text in ["lo:lo".to_owned(), format!("{pid}/lo:/proc/{pid}/ns/net/lo")] {
            assert_eq!(pair(&text).unwrap(), Pair { entry: lo, exit: lo }, "{text}");
        }
        for (text, hint) in [
            ("lo", "ENTRY:EXIT"),
            ("lo:nosuch", "nosuch"),
            ("nowhere/lo:lo", "nowhere"),
            (":", "no network device"),
        ] {
            let e = pair(text).unwrap_err().to_string();
            assert!(e.contains(hint), "{text}: {e}");
        }
    }
}
