//! Code of the services in `proto/`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["helloworld", "routeguide", "echo", "interop"];
    let paths = files.map(|name| format!("proto/{name}.proto"));
    dunlin_build::configure().compile_protos(&paths, &["proto"])?;
    Ok(())
}
