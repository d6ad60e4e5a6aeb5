//! Network namespaces for the tests of several crates: a hub with a bridge, and others that are wired to it. They are
//! gone when they are dropped, and traffic does not leave them.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::process::Command;

/// Runs a program; what it says on standard error is the error.
pub fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// The words that run a program in a namespace.
pub fn within(name: &str) -> Vec<String> {
    ["ip", "netns", "exec", name].map(str::to_owned).to_vec()
}

/// A hub and the hosts around it.
pub struct Star {
    names: Vec<String>,
}

impl Star {
    /// Where the hub is reached.
    pub const HUB: &'static str = "198.51.100.100";

    /// With so many hosts, 100 at most. The names of the namespaces begin with `name` and the number of this process.
    ///
    /// # Errors
    /// When namespaces cannot be made here, with what `ip` said.
    pub fn new(name: &str, hosts: usize) -> Result<Self, String> {
        let id = std::process::id();
        let mut star = Self { names: Vec::new() };
        star.add(format!("{name}-{id}-hub"))?;
        let hub = star.names[0].clone();
        let address = |host: &str| format!("{host}/24");
        run("ip", &["-n", &hub, "link", "add", "hub", "type", "bridge"])?;
        let own = address(Self::HUB);
        run("ip", &["-n", &hub, "addr", "add", &own, "dev", "hub"])?;
        run("ip", &["-n", &hub, "link", "set", "hub", "up"])?;
        for host in 0..hosts {
            star.add(format!("{name}-{id}-{host}"))?;
            let there = star.names[host + 1].clone();
            let end = format!("to{host}");
            let wire = [
                "link", "add", &end, "type", "veth", "peer", "name", "wire", "netns", &there,
            ];
            run("ip", &[&["-n", &hub][..], &wire].concat())?;
            run(
                "ip",
                &["-n", &hub, "link", "set", &end, "master", "hub", "up"],
            )?;
            let own = address(&Self::host(host));
            run("ip", &["-n", &there, "addr", "add", &own, "dev", "wire"])?;
            run("ip", &["-n", &there, "link", "set", "wire", "up"])?;
        }
        Ok(star)
    }

    fn add(&mut self, name: String) -> Result<(), String> {
        run("ip", &["netns", "add", &name])?;
        self.names.push(name.clone());
        run("ip", &["-n", &name, "link", "set", "lo", "up"])
    }

    /// The address of a host.
    pub fn host(number: usize) -> String {
        format!("198.51.100.{}", number + 1)
    }

    /// The namespaces' names, the hub's first.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
    }
}
