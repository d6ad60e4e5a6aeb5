//! Finds hosts of an experiment by name.

use dunlin_lab::experiment::Experiment;

use crate::commands::Failure;

/// The names of all hosts, in their order, without those that were not asked for: by name, or by that of a group. All
/// are asked for when nothing is named.
///
/// # Errors
/// When there is no host of a name.
pub(super) fn named(
    experiment: &Experiment,
    asked: &[String],
    option: &str,
) -> Result<Vec<Option<String>>, Failure> {
    let hosts = experiment.hosts();
    let is = |host: &str, name: &str| {
        let rest = |whole: &str, part: &str| whole.strip_prefix(part).map(str::to_owned);
        let of_group = rest(host, name).is_some_and(|rest| rest.starts_with('.'));
        host == name || of_group || rest(name, host).is_some_and(|rest| rest == ".0")
    };
    if let Some(name) = asked
        .iter()
        .find(|name| !hosts.iter().any(|host| is(host, name)))
    {
        return Err(Failure::usage(format!("{option} {name}: no such host"))
            .help(format_args!("hosts of the first run: {}", hosts.join(", "))));
    }
    let hosts = hosts.into_iter();
    let wanted = |host: &String| asked.is_empty() || asked.iter().any(|name| is(host, name));
    Ok(hosts.map(|host| Some(host).filter(wanted)).collect())
}
