"""A typed service with generated protobuf classes: needs protobuf and grpcio-tools, to generate them here.

python3 greeter.py: server and client in one program. `python3 greeter.py dunlin://127.0.0.1:7400` calls another server,
such as `cargo run -p dunlin-examples --bin helloworld`, which is in Rust.
"""

import pathlib
import subprocess
import sys
import tempfile

import dunlin

proto = pathlib.Path(__file__).parents[2] / "dunlin-examples" / "proto" / "helloworld.proto"
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto.parent}", f"--python_out={folder}", proto.name]
    subprocess.run(command, check=True)
    sys.path.insert(0, folder)
    from helloworld_pb2 import HelloReply, HelloRequest

SAY_HELLO = "helloworld.Greeter/SayHello"


def greet(address):
    with dunlin.connect(address) as client:
        say_hello = client.method(SAY_HELLO, HelloRequest, HelloReply)
        print(say_hello(HelloRequest(name="Ada"), timeout=1).message)


if len(sys.argv) > 1:
    greet(sys.argv[1])
else:
    server = dunlin.Server("dunlin://127.0.0.1:0")

    @server.method(SAY_HELLO, HelloRequest)
    def say_hello(request):
        return HelloReply(message=f"Hello {request.name}!")

    with server:
        greet(server.address)
