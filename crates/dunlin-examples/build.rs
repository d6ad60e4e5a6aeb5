//! Code of the services in `proto/`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["helloworld", "routeguide", "echo", "interop", "blobs"];
    let paths = files.map(|name| format!("proto/{name}.proto"));
    dunlin_build::configure()
        .views()
        .compile_protos(&paths, &["proto"])?;
    Ok(())
}
