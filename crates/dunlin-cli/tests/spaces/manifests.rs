//! The manifests of `packaging/`, played: each container's user, groups, variables, words and volumes as they are
//! written, with namespaces in the place of a container engine.

use std::collections::HashMap;
use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

use crate::place::{ask, Place, Server, Within, GROUP};

/// A container as a manifest has it.
#[derive(Debug)]
struct Container {
    user: u32,
    groups: Vec<u32>,
    arguments: Vec<String>,
    folder: Option<String>,
    /// Where the volume is mounted.
    mount: Option<String>,
}

fn load(name: &str) -> Vec<Yaml> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name);
    YamlLoader::load_from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn strings(list: &Yaml) -> Vec<String> {
    let all = list.as_vec().into_iter().flatten();
    all.map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// Services of the compose file.
fn composed() -> HashMap<String, Container> {
    let file = load("compose.yaml").remove(0);
    let services = file["services"].as_hash().unwrap();
    let names = services.keys().map(|name| name.as_str().unwrap());
    let containers = names.map(|name| {
        let service = &file["services"][name];
        let user = service["user"].as_str().unwrap().split(':').next().unwrap();
        let groups = strings(&service["group_add"]);
        let volumes = strings(&service["volumes"]);
        let container = Container {
            user: user.parse().unwrap(),
            groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
            arguments: strings(&service["command"]),
            folder: service["environment"]["DUNLIN_SHM_FOLDER"]
                .as_str()
                .map(str::to_owned),
            mount: volumes
                .first()
                .map(|volume| volume.split_once(':').unwrap().1.to_owned()),
        };
        (name.to_owned(), container)
    });
    containers.collect()
}

/// Containers of all pods.
fn of_pods() -> HashMap<String, Container> {
    let mut all = HashMap::new();
    for object in load("kubernetes.yaml") {
        if object["kind"].as_str() != Some("Pod") {
            continue;
        }
        let group = object["spec"]["securityContext"]["fsGroup"].as_i64();
        for container in object["spec"]["containers"].as_vec().unwrap() {
            let variables = container["env"].as_vec().into_iter().flatten();
            let mut folders =
                variables.filter(|one| one["name"].as_str() == Some("DUNLIN_SHM_FOLDER"));
            let user = container["securityContext"]["runAsUser"].as_i64().unwrap();
            let made = Container {
                user: u32::try_from(user).unwrap(),
                groups: group
                    .iter()
                    .map(|group| u32::try_from(*group).unwrap())
                    .collect(),
                arguments: strings(&container["args"]),
                folder: folders
                    .next()
                    .map(|one| one["value"].as_str().unwrap().to_owned()),
                mount: container["volumeMounts"][0]["mountPath"]
                    .as_str()
                    .map(str::to_owned),
            };
            all.insert(container["name"].as_str().unwrap().to_owned(), made);
        }
    }
    all
}

impl Container {
    fn within(&self, network: &str, volume: &str) -> Within {
        let mount = self.mount.as_deref().map(|at| (volume, at));
        let container = Within::default().network(network).container(mount);
        container.user(self.user, &self.groups)
    }

    fn serve(&self, place: &Place, network: &str, volume: &str) -> Server {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let within = self.within(network, volume);
        Server::start_with(place, &within, self.folder.as_deref(), &arguments)
    }

    /// The device that it reaches the server over, which its file calls `server` or by the pod's own loopback.
    fn device(&self, place: &Place, network: &str, volume: &str, host: &str) -> String {
        let arguments = self
            .arguments
            .iter()
            .map(|word| word.replace("server:", host));
        let arguments: Vec<String> = arguments.collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let within = self.within(network, volume);
        let output = ask(place, &within, self.folder.as_deref(), &arguments);
        assert!(output.status.success(), "{output:?}");
        let found = crate::common::object(&output);
        assert_eq!(found["failed"], 0, "{found}");
        found["device"].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_compose_file_is_what_it_says() {
    let all = composed();
    let Some(mut place) = Place::new("the compose file") else {
        return;
    };
    let Some([a, b]) = place.two_networks("the compose file") else {
        return;
    };
    // As the volume is mounted.
    let options = &load("compose.yaml")[0]["volumes"]["meeting"]["driver_opts"]["o"];
    assert_eq!(options.as_str().unwrap(), format!("gid={GROUP},mode=3770"));
    let volume = place.meeting(0o3770);
    let _server = all["server"].serve(&place, &b, &volume);
    let host = "198.51.100.2:";
    assert_eq!(all["near"].device(&place, &a, &volume, host), "shm");
    assert_eq!(all["far"].device(&place, &a, &volume, host), "roce");
}

#[test]
fn the_kubernetes_manifest_is_what_it_says() {
    let all = of_pods();
    let Some(mut place) = Place::new("the Kubernetes manifest") else {
        return;
    };
    let Some([a, b]) = place.two_networks("the Kubernetes manifest") else {
        return;
    };
    // As the kubelet makes a volume for an fsGroup.
    let volume = place.meeting(0o2777);
    let _server = all["server"].serve(&place, &b, &volume);
    assert_eq!(all["near"].device(&place, &b, &volume, ""), "shm");
    assert_eq!(
        all["far"].device(&place, &a, &volume, "198.51.100.2:"),
        "roce"
    );
}
