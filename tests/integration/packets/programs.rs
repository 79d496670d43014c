//! Programs that this test's own binary is too: they run in namespaces, where the test itself cannot be.

use std::{
    env,
    io::{Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::ExitCode,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};

/// The first argument of the program that answers as a pod.
pub(super) const BACKEND: &str = "packets-backend";
/// The first argument of the program that sends one datagram and prints the answer.
pub(super) const ECHO: &str = "packets-echo";
/// The first argument of the program that makes requests without a pause.
pub(super) const KNOCK: &str = "packets-knock";

/// The ports of a backend.
pub(super) const HTTP_PORT: u16 = 8080;
pub(super) const ECHO_PORT: u16 = 8081;

/// A datagram without an answer for this time has none.
const TIMEOUT: Duration = Duration::from_millis(500);
const KNOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs one of the programs, if this process was started as one.
pub(crate) fn other_main() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [BACKEND, name] => backend(name),
        [ECHO, from, to] => echo(from, to),
        [KNOCK, to, millis] => knock(to, millis),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Answers each HTTP request and each datagram with its name, on all addresses of both families.
fn backend(name: &str) -> anyhow::Result<()> {
    let tcp = TcpListener::bind((Ipv6Addr::UNSPECIFIED, HTTP_PORT))?;
    let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, ECHO_PORT))?;
    let datagrams = name.to_owned();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(datagrams.as_bytes(), from);
        }
    });
    for stream in tcp.incoming().flatten() {
        let name = name.to_owned();
        thread::spawn(move || answer(stream, &name));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, name: &str) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            bail!("the request ended early");
        }
        request.extend_from_slice(&buffer[..length]);
    }
    let client = stream.peer_addr()?.ip().to_canonical();
    let body = format!("{name} {client}");
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")?;
    Ok(())
}

fn echo(from: &str, to: &str) -> anyhow::Result<()> {
    let from: IpAddr = from.parse()?;
    let socket = UdpSocket::bind((from, 0))?;
    socket.connect(to.parse::<SocketAddr>()?)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.send(b"who?")?;
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer)?;
    println!("{}", String::from_utf8_lossy(&buffer[..length]));
    Ok(())
}

/// Makes a request after the other, each on a connection of its own and with this timeout. Prints a line for
/// each: when it began, in milliseconds since 1970, and the name that answered, or `-` with the reason why none
/// did.
fn knock(to: &str, millis: &str) -> anyhow::Result<()> {
    let (to, timeout) = (to.parse()?, Duration::from_millis(millis.parse()?));
    loop {
        let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        match request(to, timeout) {
            Ok(name) => println!("{began} {name}"),
            Err(error) => println!("{began} - {error:#}"),
        }
        thread::sleep(KNOCK_INTERVAL);
    }
}

fn request(to: SocketAddr, timeout: Duration) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).context("no body")?;
    Ok(body.split(' ').next().unwrap_or_default().to_owned())
}
