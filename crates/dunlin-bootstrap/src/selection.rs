//! The choice of the device that connects the two sides: a pure function of the devices of each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::device_name::{bare, kind, IBV, ROCE, SHM};
use crate::host::{HostDifference, HostId};

/// The hosts that a device can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Only processes with the same host id.
    SameHost(HostId),
    /// Any host on the network, with a device of the same kind.
    Network,
    /// Any host on the network that has a device of any kind with this reach: they speak RoCEv2 at the standard's UDP
    /// port.
    RoceV2,
}

/// A device that one side has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Its name: a kind, and after a colon which device of that kind: `shm`, `roce`, `ibv:mlx5_0`.
    pub device: String,
    /// The hosts that it can reach.
    pub reach: Reach,
}

impl Capability {
    /// The kind of the device: its name up to the colon.
    pub fn kind(&self) -> &str {
        kind(&self.device)
    }

    /// Whether it can connect to the other.
    fn joins(&self, other: &Self) -> bool {
        let one_kind = self.kind() == other.kind();
        match (&self.reach, &other.reach) {
            (Reach::SameHost(mine), Reach::SameHost(theirs)) => one_kind && mine == theirs,
            (Reach::Network, Reach::Network) => one_kind,
            (Reach::RoceV2, Reach::RoceV2) => true,
            // The addresses of `roce` include its UDP port. A NIC of InfiniBand does not reach one of Ethernet.
            (Reach::RoceV2, Reach::Network) | (Reach::Network, Reach::RoceV2) => {
                one_kind && self.kind() == ROCE
            }
            (Reach::SameHost(_), _) | (_, Reach::SameHost(_)) => false,
        }
    }
}

/// Why a device was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The client asked for it.
    Asked,
    /// Both sides have RDMA hardware.
    Hardware,
    /// Both sides are on the same host.
    SameHost,
    /// There is no hardware on both sides, and they are on different hosts.
    SoftwareRoce,
    /// One side has RDMA hardware, and the other speaks its wire format by UDP sockets.
    MixedRoce,
    /// It is the only device that both sides have.
    OnlyCommon,
    /// Both sides are on the same host, but cannot share memory because of this difference.
    RoceOnOneHost(HostDifference),
}

impl Reason {
    /// The reason as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "requested by name",
            Self::Hardware => "RDMA hardware on both sides",
            Self::SameHost => "same host: shared memory",
            Self::SoftwareRoce => "no hardware on both sides, not the same host: RoCEv2 on UDP",
            Self::MixedRoce => {
                "RoCEv2 between RDMA hardware on one side and UDP sockets on the other"
            }
            Self::OnlyCommon => "the only device that both sides have",
            Self::RoceOnOneHost(difference) => match (difference.namespace, difference.user) {
                (true, false) => "same host, another network namespace: RoCEv2 on UDP",
                (false, true) => "same host, another user: RoCEv2 on UDP",
                _ => "same host, another network namespace and another user: RoCEv2 on UDP",
            },
        }
    }
}

/// The result of the choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The client's device.
    pub client_device: String,
    /// The server's device: of the same kind, or with the same wire format.
    pub server_device: String,
    /// Why it was chosen.
    pub reason: Reason,
}

/// The two sides have no common device, or not the one that was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoCommonDevice {
    /// What the client requested, if anything.
    pub asked: Option<String>,
    /// The client's devices.
    pub client: Vec<Capability>,
    /// The server's devices.
    pub server: Vec<Capability>,
}

impl std::error::Error for NoCommonDevice {}

impl NoCommonDevice {
    /// What prevents two processes of one host from sharing memory, as text.
    fn on_one_host(&self) -> Option<&'static str> {
        difference(&self.client, &self.server)?.on_one_host()
    }

    /// Why no device was chosen, without the lists and the advice that [`fmt::Display`] adds.
    pub fn reason(&self) -> String {
        let has = |side: &[Capability], asked: &str| side.iter().any(|one| fits(one, asked));
        let shares_kind = |asked: &str| self.server.iter().any(|one| one.kind() == kind(asked));
        match &self.asked {
            Some(asked) if !has(&self.client, asked) => {
                format!("the client does not have the device `{asked}`")
            }
            Some(asked) if !shares_kind(asked) => {
                format!("the server does not have the device `{asked}`")
            }
            Some(asked) => {
                let reason =
                    format!("the device `{asked}` cannot connect the client to the server");
                match self.on_one_host().filter(|_| bare(kind(asked)) == SHM) {
                    Some(words) => format!("{reason}: {words}"),
                    None => reason,
                }
            }
            None => match self.on_one_host() {
                Some(words) => format!("client and server have no device in common: {words}"),
                None => "client and server have no device in common that connects them".into(),
            },
        }
    }
}

/// Formats device names as part of a sentence.
struct Names<'a>(&'a [Capability]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, capability) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let limit = match capability.reach {
                Reach::SameHost(_) => " (same host only)",
                Reach::Network => "",
                Reach::RoceV2 => " (RoCEv2)",
            };
            write!(f, "{comma}{}{limit}", capability.device)?;
        }
        Ok(())
    }
}

impl fmt::Display for NoCommonDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (Names(&self.client), Names(&self.server));
        f.write_str(&self.reason())?;
        write!(
            f,
            "; devices of the client: {client}; devices of the server: {server}. "
        )?;
        if self.asked.is_some() {
            f.write_str("Request a device that both have, or none to have one selected. ")?;
        }
        f.write_str(
            "Shared memory connects processes of the same host, network namespace and user, or processes of one host \
             that use the same folder for it (DUNLIN_SHM_FOLDER); between hosts, both sides need a network device of \
             the same kind, or the side without an RDMA NIC needs DUNLIN_ROCE_PORT=4791",
        )
    }
}

/// Whether a device matches the request, by its full name or by its kind.
fn fits(capability: &Capability, asked: &str) -> bool {
    capability.device == asked || capability.kind() == asked
}

/// Better devices first. Hardware beats shared memory because its one-sided verbs cost no processor time. If only one
/// side has hardware, both use UDP sockets unless a device was requested: two UDP sockets agree on options that a NIC
/// does not have, such as leaving out the invariant CRC. A device on top of another ranks like that one.
fn rank(mine: &Capability, theirs: &Capability) -> (u8, Reason) {
    match (bare(mine.kind()), bare(theirs.kind()), &mine.reach) {
        (IBV, IBV, _) => (0, Reason::Hardware),
        (_, _, Reach::SameHost(_)) => (1, Reason::SameHost),
        (ROCE, ROCE, _) => (2, Reason::SoftwareRoce),
        (mine, theirs, _) if mine != theirs => (3, Reason::MixedRoce),
        _ => (4, Reason::OnlyCommon),
    }
}

/// The difference between two sides that both have shared memory, comparing the first id of each.
fn difference(client: &[Capability], server: &[Capability]) -> Option<HostDifference> {
    let own = |side: &[Capability]| {
        side.iter().find_map(|one| match one.reach {
            Reach::SameHost(id) if one.kind() == SHM => Some(id),
            _ => None,
        })
    };
    Some(own(client)?.difference(&own(server)?))
}

/// Picks the best device that both sides have; among equals the one that each side named first. `preference` is a name
/// or kind of the client's devices, and then no other is chosen.
///
/// # Errors
/// When there is no common device, or not the requested one.
pub fn choose(
    client: &[Capability],
    server: &[Capability],
    preference: Option<&str>,
) -> Result<Choice, NoCommonDevice> {
    client
        .iter()
        .filter(|mine| preference.is_none_or(|asked| fits(mine, asked)))
        .flat_map(|mine| server.iter().map(move |theirs| (mine, theirs)))
        .filter(|(mine, theirs)| mine.joins(theirs))
        .min_by_key(|(mine, theirs)| rank(mine, theirs).0)
        .map(|(mine, theirs)| Choice {
            client_device: mine.device.clone(),
            server_device: theirs.device.clone(),
            reason: match (preference, rank(mine, theirs).1) {
                (Some(_), _) => Reason::Asked,
                (None, Reason::SoftwareRoce) => difference(client, server)
                    .filter(|difference| difference.on_one_host().is_some())
                    .map_or(Reason::SoftwareRoce, Reason::RoceOnOneHost),
                (None, reason) => reason,
            },
        })
        .ok_or_else(|| NoCommonDevice {
            asked: preference.map(str::to_owned),
            client: client.to_vec(),
            server: server.to_vec(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shm(host: u8) -> Capability {
        let reach = Reach::SameHost(HostId::from_bytes([host; 16]));
        Capability {
            device: "shm".into(),
            reach,
        }
    }

    fn network(device: &str) -> Capability {
        Capability {
            device: device.into(),
            reach: Reach::Network,
        }
    }

    fn chosen(client: &[Capability], server: &[Capability]) -> (String, String, Reason) {
        let choice = choose(client, server, None).unwrap();
        (choice.client_device, choice.server_device, choice.reason)
    }

    #[test]
    fn hardware_then_shared_memory_then_roce() {
        let client = [network("roce"), shm(1), network("ibv:mlx5_0")];
        let all = [
            network("roce"),
            shm(1),
            network("ibv:mlx5_1"),
            network("ibv:mlx5_2"),
        ];
        let hardware = ("ibv:mlx5_0".into(), "ibv:mlx5_1".into(), Reason::Hardware);
        assert_eq!(chosen(&client, &all), hardware);
        assert_eq!(
            chosen(&client, &all[..2]),
            ("shm".into(), "shm".into(), Reason::SameHost)
        );
        let remote = [shm(2), network("roce")];
        assert_eq!(
            chosen(&client, &remote),
            ("roce".into(), "roce".into(), Reason::SoftwareRoce)
        );
        let other = [network("sim:a")];
        assert_eq!(chosen(&other, &other).2, Reason::OnlyCommon);
    }

    fn speaks_roce(device: &str) -> Capability {
        Capability {
            device: device.into(),
            reach: Reach::RoceV2,
        }
    }

    /// One side has more devices than the other: they still connect.
    #[test]
    fn hardware_on_one_side_is_no_obstacle() {
        let with = [shm(1), speaks_roce("ibv:mlx5_0"), network("roce")];
        let without = [shm(2), network("roce")];
        let software = ("roce".into(), "roce".into(), Reason::SoftwareRoce);
        assert_eq!(chosen(&with, &without), software);
        assert_eq!(chosen(&without, &with), software);
        // InfiniBand does not reach Ethernet.
        let infiniband = [network("ibv:mlx4_0"), network("roce")];
        assert_eq!(chosen(&with, &infiniband), software);
        assert_eq!(chosen(&infiniband, &with), software);
        // At the standard's port the NIC may be requested.
        let without = [shm(2), speaks_roce("roce")];
        assert_eq!(chosen(&with, &without), software);
        let choice = choose(&with, &without, Some("ibv")).unwrap();
        assert_eq!(
            (&choice.client_device[..], &choice.server_device[..]),
            ("ibv:mlx5_0", "roce")
        );
        // And it is the only choice if one side has nothing else.
        let mixed = |mine: &str, theirs: &str| (mine.into(), theirs.into(), Reason::MixedRoce);
        assert_eq!(chosen(&without, &with[1..2]), mixed("roce", "ibv:mlx5_0"));
        assert_eq!(chosen(&with[1..2], &without), mixed("ibv:mlx5_0", "roce"));
        let error = choose(&with[1..2], &[network("roce")], None).unwrap_err();
        assert!(
            error.to_string().contains("DUNLIN_ROCE_PORT=4791"),
            "{error}"
        );
    }

    /// Another namespace, another user, both: reported, whether UDP is used instead or nothing is left.
    #[test]
    fn what_keeps_one_host_from_sharing_memory_is_said() {
        let of = |parts: [u8; 3]| {
            let [kernel, namespace, user] = parts;
            let mut bytes = [kernel; 16];
            bytes[8..12].fill(namespace);
            bytes[12..].fill(user);
            Capability {
                device: "shm".into(),
                reach: Reach::SameHost(HostId::from_bytes(bytes)),
            }
        };
        for (theirs, words) in [
            ([1, 9, 1], "same host, another network namespace"),
            ([1, 1, 9], "same host, another user"),
            ([1, 9, 9], "another network namespace and another user"),
        ] {
            let (client, server) = (of([1, 1, 1]), of(theirs));
            let both = [server.clone(), network("roce")];
            let choice = choose(&[client.clone(), network("roce")], &both, None).unwrap();
            assert!(choice.reason.as_str().contains(words), "{choice:?}");
            let alone = (std::slice::from_ref(&client), std::slice::from_ref(&server));
            let error = choose(alone.0, alone.1, None).unwrap_err();
            assert!(error.reason().contains(words), "{}", error.reason());
            let error = choose(&[client], &both, Some("shm")).unwrap_err();
            assert!(error.reason().contains(words), "{}", error.reason());
        }
        // A folder that both have connects them all the same.
        let (client, server) = (of([1, 1, 1]), of([1, 9, 9]));
        let folder = of([1, 7, 7]);
        let choice = choose(&[client, folder.clone()], &[server, folder], None).unwrap();
        assert_eq!(choice.reason, Reason::SameHost);
        let other_host = choose(
            &[of([1, 1, 1]), network("roce")],
            &[of([2, 1, 1]), network("roce")],
            None,
        );
        assert_eq!(other_host.unwrap().reason, Reason::SoftwareRoce);
    }

    #[test]
    fn another_host_shares_no_memory() {
        let error = choose(&[shm(1)], &[shm(2)], None).unwrap_err().to_string();
        assert!(error.contains("no device in common"), "{error}");
        assert!(error.contains("between hosts"), "{error}");
        let mixed = [Capability {
            device: "shm".into(),
            reach: Reach::Network,
        }];
        assert!(choose(&[shm(1)], &mixed, None).is_err());
    }

    #[test]
    fn what_is_asked_for_is_taken_or_refused() {
        let client = [network("ibv:mlx5_0"), network("ibv:mlx5_1"), shm(1)];
        let server = [network("ibv:mlx5_9"), shm(1)];
        let choice = choose(&client, &server, Some("ibv:mlx5_1")).unwrap();
        assert_eq!(
            (choice.client_device.as_str(), choice.reason),
            ("ibv:mlx5_1", Reason::Asked)
        );
        assert_eq!(
            choose(&client, &server, Some("shm")).unwrap().client_device,
            "shm"
        );
        assert_eq!(
            choose(&client, &server, Some("ibv")).unwrap().client_device,
            "ibv:mlx5_0"
        );

        let error = choose(&client, &server, Some("roce"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the client does not have the device `roce`"),
            "{error}"
        );
        assert!(
            error.contains("ibv:mlx5_1, shm (same host only)"),
            "{error}"
        );
        assert!(error.contains("of the server: ibv:mlx5_9"), "{error}");
        let error = choose(&client, &server[..1], Some("shm"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the server does not have the device `shm`"),
            "{error}"
        );
        let error = choose(&client, &[shm(2)], Some("shm"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot connect"), "{error}");
        let error = choose(&[], &[], None).unwrap_err().to_string();
        assert!(error.contains("devices of the client: none"), "{error}");
    }
}
