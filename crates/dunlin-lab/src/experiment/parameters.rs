//! NICs, processors and switches of an experiment: by name, by file, with single parameters changed.

use std::path::Path;

use dunlin_sim::{HostParameters, NicParameters, ParameterError, SwitchParameters};

use super::check::Values;
use super::keys::PARAMETERS;
use super::mistake::{instead, Mistake, Place, Sources, WrongFile};
use super::model::Hosts;
use super::path;
use super::tree::{scalar, Table, Value};
use super::Around;
use crate::figure::Setting;

/// A parameter that differs from its file.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// One of [`PARAMETERS`].
    of: &'static str,
    name: String,
    value: f64,
}

impl Change {
    pub(super) fn new(of: &'static str, name: &str, value: f64) -> Self {
        Self {
            of,
            name: name.to_owned(),
            value,
        }
    }
}

/// Reads the tables that change parameters.
pub(super) fn changes(root: &Table) -> Result<Vec<Change>, Mistake> {
    let mut changes = Vec::new();
    for of in PARAMETERS {
        let Some(node) = root.get(of) else { continue };
        let Value::Table(table) = &node.value else {
            let words = format!(
                "`{of}` is {}: it must be a table, [{of}]",
                node.value.shown()
            );
            return Err(Mistake::new(node.place, words));
        };
        let known = names(of);
        for entry in &table.entries {
            let name = &entry.key;
            if !known.contains(&name.as_str()) {
                let words = format!("unknown `{of}.{name}`{}", instead(name, &known));
                return Err(Mistake::new(entry.place, words));
            }
            match entry.node.value {
                Value::Number(_, value) if value >= least(of, name) && value.is_finite() => {
                    changes.push(Change::new(of, name, value));
                }
                ref other => {
                    let (found, least) = (other.shown(), least(of, name));
                    let words =
                        format!("`{of}.{name}` is {found}: it must be a number from {least}");
                    return Err(Mistake::new(entry.node.place, words));
                }
            }
        }
    }
    Ok(changes)
}

/// Parses a setting `nic.NAME=VALUE`, `cpu.NAME=VALUE` or `switch.NAME=VALUE`, for all NICs, processors or switches.
///
/// # Errors
/// When it is none of these.
pub fn parameter(set: &str) -> Result<Setting, WrongFile> {
    let sources = Sources {
        name: String::new(),
        text: String::new(),
        sets: vec![set.to_owned()],
    };
    let read = || -> Result<Setting, Mistake> {
        let at = Place::Set(0);
        let (key, value) = set
            .split_once('=')
            .ok_or_else(|| Mistake::new(at, "it must be KEY=VALUE"))?;
        let key = key.trim();
        let of = key.split('.').next().unwrap_or_default();
        if !PARAMETERS.contains(&of) {
            let words = format!("`{key}` is no parameter{}", instead(of, &PARAMETERS));
            return Err(Mistake::new(at, words));
        }
        let mut root = Table::default();
        path::set(&mut root, key, &scalar(value.trim(), at), at)?;
        let changes = changes(&root)?;
        let change = changes.into_iter().next();
        let change = change.ok_or_else(|| Mistake::new(at, format!("`{key}` is no parameter")))?;
        Ok(Setting {
            of: change.of.to_owned(),
            name: change.name,
            value: change.value,
        })
    };
    read().map_err(|mistake| sources.wrong(mistake))
}

/// Names of the parameters of a kind.
fn names(of: &str) -> Vec<&'static str> {
    match of {
        "nic" => NicParameters::names().collect(),
        "cpu" => HostParameters::names().collect(),
        _ => SwitchParameters::names().collect(),
    }
}

/// The minimum of a parameter of a kind.
fn least(of: &str, name: &str) -> f64 {
    match of {
        "nic" => NicParameters::least(name),
        "cpu" => HostParameters::least(name),
        _ => SwitchParameters::least(name),
    }
}

fn apply(
    changes: &[Change],
    of: &str,
    mut set: impl FnMut(&str, f64) -> Result<(), ParameterError>,
) -> Result<(), Mistake> {
    for change in changes.iter().filter(|change| change.of == of) {
        set(&change.name, change.value)
            .map_err(|error| Mistake::new(Place::Nowhere, error.to_string()))?;
    }
    Ok(())
}

/// Loads the file that `nic_file` or `switch_file` names, relative to the experiment's folder.
fn load<T>(
    values: &Values<'_>,
    key: &str,
    folder: &Path,
    load: fn(&Path) -> Result<T, ParameterError>,
) -> Option<Result<T, Mistake>> {
    let file = values.text(key)?;
    let loaded = load(&folder.join(&file));
    Some(loaded.map_err(|error| {
        let why = error.to_string().trim().replace('\n', "; ");
        values.wrong(key, &format!("{file:?}"), why)
    }))
}

/// Compiled-in parameters, and their names in files.
type Named<P> = (&'static str, fn() -> P);

/// NICs.
const NICS: [Named<NicParameters>; 8] = [
    ("connectx-3", NicParameters::connectx_3),
    ("connect-ib", NicParameters::connect_ib),
    ("connectx-4-lx", NicParameters::connectx_4_lx),
    ("connectx-5", NicParameters::connectx_5),
    ("connectx-6-dx", NicParameters::connectx_6_dx),
    ("bluefield-2", NicParameters::bluefield_2),
    ("e810", NicParameters::e810),
    ("p2100g", NicParameters::p2100g),
];
/// Hosts.
const CPUS: [Named<HostParameters>; 3] = [
    ("xeon-e5-v4", HostParameters::xeon_e5_v4),
    ("xeon-gold-5118", HostParameters::xeon_gold_5118),
    ("epyc-7452", HostParameters::epyc_7452),
];
/// Switches.
const SWITCHES: [Named<SwitchParameters>; 4] = [
    ("sx6036", SwitchParameters::sx6036),
    ("sx1012", SwitchParameters::sx1012),
    ("sb7890", SwitchParameters::sb7890),
    ("z9264f", SwitchParameters::z9264f),
];

/// Names of NICs that files and options may use.
pub const NIC_NAMES: [&str; NICS.len()] = only_names(&NICS);
/// Names of processors.
pub const CPU_NAMES: [&str; CPUS.len()] = only_names(&CPUS);
/// Names of switches.
pub const SWITCH_NAMES: [&str; SWITCHES.len()] = only_names(&SWITCHES);

const fn only_names<P, const N: usize>(all: &[Named<P>; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = all[at].0;
        at += 1;
    }
    names
}

fn by_name<P>(all: &[Named<P>], name: &str) -> Option<P> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, make)| make())
}

/// A NIC of [`NIC_NAMES`].
pub fn nic_named(name: &str) -> Option<NicParameters> {
    by_name(&NICS, name)
}

/// A processor of [`CPU_NAMES`].
pub fn cpu_named(name: &str) -> Option<HostParameters> {
    by_name(&CPUS, name)
}

/// A switch of [`SWITCH_NAMES`].
pub fn switch_named(name: &str) -> Option<SwitchParameters> {
    by_name(&SWITCHES, name)
}

/// The parameters that a key names; the name has been checked.
fn named<P>(all: &[Named<P>], values: &Values<'_>, key: &str) -> P {
    let name = values.text(key).unwrap_or_default();
    by_name(all, &name).expect("a name of the list")
}

pub(super) fn nic(
    group: &Values<'_>,
    around: &Around,
    changes: &[Change],
) -> Result<NicParameters, Mistake> {
    let by_name = || named(&NICS, group, "nic");
    let loaded = load(group, "nic_file", &around.folder, NicParameters::load);
    let mut nic = loaded.unwrap_or_else(|| Ok(by_name()))?;
    if let Some(other) = &around.nic {
        nic = other.clone();
    }
    let name = nic.name.clone();
    vary(&around.parameters, &name, |name, value| {
        nic.set(name, value)
    });
    apply(changes, "nic", |name, value| nic.set(name, value))?;
    Ok(nic)
}

/// Applies the changes meant for the NIC, processor or switch of this name.
fn vary(
    settings: &[Setting],
    of: &str,
    mut set: impl FnMut(&str, f64) -> Result<(), ParameterError>,
) {
    for setting in settings.iter().filter(|setting| setting.of == of) {
        set(&setting.name, setting.value).expect("a parameter");
    }
}

pub(super) fn cpu(
    group: &Values<'_>,
    around: &Around,
    changes: &[Change],
) -> Result<HostParameters, Mistake> {
    let mut cpu = named(&CPUS, group, "cpu");
    let name = cpu.name.clone();
    vary(&around.parameters, &name, |name, value| {
        cpu.set(name, value)
    });
    apply(changes, "cpu", |name, value| cpu.set(name, value))?;
    if let Some(cores) = group.number("cores") {
        cpu.cores = cores;
    }
    if cpu.cores < 1.0 {
        return Err(Mistake::new(
            Place::Nowhere,
            "`cpu.cores` is 0: a host has a core at least",
        ));
    }
    Ok(cpu)
}

pub(super) fn switch(
    topology: &Values<'_>,
    around: &Around,
    changes: &[Change],
) -> Result<SwitchParameters, Mistake> {
    let by_name = || named(&SWITCHES, topology, "switch");
    let loaded = load(
        topology,
        "switch_file",
        &around.folder,
        SwitchParameters::load,
    );
    let mut switch = loaded.unwrap_or_else(|| Ok(by_name()))?;
    let name = switch.name.clone();
    vary(&around.parameters, &name, |name, value| {
        switch.set(name, value)
    });
    apply(changes, "switch", |name, value| switch.set(name, value))?;
    Ok(switch)
}

/// Sets the MTU of all NICs to their minimum, as administrators do: both ends of a connection must have the same.
pub(super) fn agree_on_mtu(hosts: &mut [Hosts], changes: &[Change]) {
    let set = |change: &Change| change.of == "nic" && change.name == "mtu_bytes";
    if changes.iter().any(set) {
        return;
    }
    let least = hosts
        .iter()
        .map(|group| group.nic.mtu_bytes)
        .fold(f64::MAX, f64::min);
    for group in hosts {
        group.nic.mtu_bytes = least;
    }
}

#[cfg(test)]
mod tests {
    use super::{parameter, CPU_NAMES, NIC_NAMES, SWITCH_NAMES};

    #[test]
    fn a_parameter_of_all_is_set_by_its_name() {
        let set = parameter("nic.tx_wqe_ns = 20").expect("a parameter");
        assert_eq!((set.of.as_str(), set.name.as_str()), ("nic", "tx_wqe_ns"));
        assert_eq!(set.value, 20.0);
        for (set, why) in [
            ("nic.tx_wqe=20", "did you mean `tx_wqe_ns`?"),
            ("nic.tx_wqe_ns=fast", "must be a number"),
            ("nic.mtu_bytes=0", "it must be a number from 1"),
            ("nic.pcie_chunk_bytes=0", "it must be a number from 1"),
            ("nic.link_gbit_s=0", "it must be a number from 0.001"),
            ("cpu.llc_sets=0", "it must be a number from 1"),
            (
                "clients.threads=2",
                "is no parameter (there are: nic, cpu, switch)",
            ),
            ("nic.tx_wqe_ns", "KEY=VALUE"),
            ("nic=3", "--set nic=3"),
        ] {
            let said = parameter(set).expect_err(set).to_string();
            assert!(said.contains(why), "{set}: {said}");
        }
    }

    /// The names of the lists are those of the files, and none is missing.
    #[test]
    fn every_name_is_a_file() {
        let files: Vec<&str> = dunlin_sim::parameter_files()
            .map(|(name, _)| name)
            .collect();
        let names = [&NIC_NAMES[..], &CPU_NAMES, &SWITCH_NAMES].concat();
        assert_eq!(files.len(), names.len());
        for name in names {
            assert!(files.contains(&format!("{name}.toml").as_str()), "{name}");
        }
    }
}
