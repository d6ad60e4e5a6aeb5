//! The places where the membership of a replicated database can be kept.

use std::path::PathBuf;
use std::str::FromStr;

#[cfg(feature = "etcd")]
use dunlin::txn::membership::etcd::EtcdMembership;
use dunlin::txn::membership::file::FileMembership;
use dunlin::txn::membership::Membership;

use crate::commands::Failure;

/// The place of the membership, as given by `--membership`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A folder.
    Folder(PathBuf),
    /// A name in an etcd cluster, with the cluster's members.
    Etcd {
        /// `HOST:PORT` of each.
        members: Vec<String>,
        /// The name of the database.
        name: String,
    },
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("etcd://") {
            let wrong =
                || format!("invalid membership {text}: write etcd://HOST:PORT[,HOST:PORT...]/NAME");
            let (members, name) = rest.split_once('/').ok_or_else(wrong)?;
            let members: Vec<String> = members.split(',').map(str::to_owned).collect();
            if name.is_empty() || name.contains('/') || members.iter().any(String::is_empty) {
                return Err(wrong());
            }
            let name = name.to_owned();
            return Ok(Self::Etcd { members, name });
        }
        match text.split_once("://") {
            Some((scheme, _)) => Err(format!(
                "unsupported membership {scheme}: use a folder or etcd"
            )),
            None if text.is_empty() => Err("the name of the folder is empty".to_owned()),
            None => Ok(Self::Folder(text.into())),
        }
    }
}

impl Place {
    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub(super) fn open(&self) -> Result<Box<dyn Membership>, Failure> {
        match self {
            Self::Folder(folder) => {
                let opened = FileMembership::open(folder).map_err(Failure::new)?;
                Ok(Box::new(opened))
            }
            #[cfg(feature = "etcd")]
            Self::Etcd { members, name } => {
                let opened = EtcdMembership::open(members, name).map_err(Failure::new)?;
                Ok(Box::new(opened))
            }
            #[cfg(not(feature = "etcd"))]
            Self::Etcd { .. } => Err(Failure::usage(
                "this command was built without support for etcd",
            )
            .help("build it with `--features etcd`, a default feature")),
        }
    }
}
