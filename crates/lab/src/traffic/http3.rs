//! Loads a server of HTTP/3 (RFC 9114, over QUIC, RFC 9000) with requests, as `wrk` does one of
//! HTTP/1.1: Debian has no program for it.

use super::histogram::Durations;
use anyhow::{Context, Result, anyhow, ensure};
use bytes::Buf as _;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::client::Resumption;
use rustls::crypto::ring;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// What to load, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Load {
    /// The server.
    server: SocketAddr,
    /// The page's path, with its slash.
    page: String,
    /// Connections at the same time, each from a port of its own; each has one request outstanding.
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// For how long.
    #[arg(long)]
    seconds: u32,
    /// The seconds after which a request is lost.
    #[arg(long, default_value_t = 5)]
    timeout: u32,
    /// Each page comes by a connection of its own, with a whole handshake.
    #[arg(long)]
    fresh: bool,
}

/// The results of one or more connections.
struct Count {
    answers: Durations,
    bytes: u64,
    lost: u64,
    /// The last error.
    why: Option<anyhow::Error>,
}

/// Sends requests on a connection. The endpoint is its socket.
struct Asking {
    requests: h3::client::SendRequest<h3_quinn::OpenStreams, bytes::Bytes>,
    endpoint: Endpoint,
}

/// Loads the server once it answers, and returns the line that `wrk` prints here. Requests that are
/// outstanding at the end count as nothing. The time to the answer includes the handshake of a
/// connection of its own, and the bytes are those of pages without headers.
///
/// # Errors
/// The last one, if no request was answered.
pub(crate) fn main(load: &Load) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(load))
}

async fn run(load: &Load) -> Result<String> {
    let configuration = configuration()?;
    answers(load, &configuration).await?;
    let until = Instant::now() + Duration::from_secs(load.seconds.into());
    let askers: Vec<_> = (0..load.connections)
        .map(|_| tokio::spawn(ask(load.clone(), configuration.clone(), until)))
        .collect();
    let mut all = Count::new();
    for asker in askers {
        let one = asker.await?;
        all.answers.add(&one.answers);
        all.bytes += one.bytes;
        all.lost += one.lost;
        all.why = one.why.or(all.why);
    }
    let quantile = |share| all.answers.quantile(share);
    let (Some(mean), Some(median), Some(p99)) = (all.answers.mean(), quantile(0.5), quantile(0.99)) else {
        let why = all.why.unwrap_or_else(|| anyhow!("none ended in time"));
        return Err(why.context("no request was answered"));
    };
    let micros = u64::from(load.seconds) * 1_000_000;
    let (count, bytes, lost) = (all.answers.count(), all.bytes, all.lost);
    Ok(format!("result {count} {micros} {bytes} {lost} {mean} {median} {p99}"))
}

/// Waits until the server has answered a request: it may still be making its certificate.
async fn answers(load: &Load, configuration: &ClientConfig) -> Result<()> {
    let begin = Instant::now();
    loop {
        let error = match request(load, configuration, None).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if begin.elapsed() >= load.patience() {
            return Err(error.context("no request was answered"));
        }
        sleep(PAUSE).await;
    }
}

/// Before another request to a server that has refused one.
const PAUSE: Duration = Duration::from_millis(10);

impl Load {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

impl Count {
    fn new() -> Count {
        Count {
            answers: Durations::new(),
            bytes: 0,
            lost: 0,
            why: None,
        }
    }
}

/// Asks for one page after the other on one connection, or each on a new one.
async fn ask(load: Load, configuration: ClientConfig, until: Instant) -> Count {
    let mut count = Count::new();
    let mut connection: Option<Asking> = None;
    loop {
        let begin = Instant::now();
        let one = request(&load, &configuration, connection.take());
        let Ok(came) = timeout_at(until, one).await else {
            return count;
        };
        match came {
            Ok((bytes, asking)) => {
                count.answers.record(begin.elapsed().as_nanos() as u64);
                count.bytes += bytes;
                connection = Some(asking).filter(|_| !load.fresh);
            }
            Err(error) => {
                count.lost += 1;
                count.why = Some(error);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Fetches the page by this connection or a new one; returns its bytes.
async fn request(load: &Load, configuration: &ClientConfig, connection: Option<Asking>) -> Result<(u64, Asking)> {
    let one = async {
        let mut asking = match connection {
            Some(asking) => asking,
            None => connect(load.server, configuration).await?,
        };
        let bytes = page(&mut asking, load).await?;
        Ok((bytes, asking))
    };
    let within = load.patience();
    let came = timeout(within, one).await;
    came.unwrap_or_else(|_| Err(anyhow!("no answer within {within:?}")))
}

async fn connect(server: SocketAddr, configuration: &ClientConfig) -> Result<Asking> {
    let mut endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(configuration.clone());
    let connection = endpoint.connect(server, &server.ip().to_string())?.await?;
    let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    // Ends when `requests` is dropped.
    tokio::spawn(async move { poll_fn(|context| driver.poll_close(context)).await });
    Ok(Asking { requests, endpoint })
}

impl Drop for Asking {
    fn drop(&mut self) {
        // The server need not keep the connection until it is idle for too long.
        self.endpoint.close(0_u32.into(), b"");
    }
}

async fn page(asking: &mut Asking, load: &Load) -> Result<u64> {
    let request = http::Request::get(format!("https://{}{}", load.server, load.page)).body(())?;
    let mut stream = asking.requests.send_request(request).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status();
    ensure!(status.is_success(), "the answer is {status}");
    let mut bytes = 0;
    while let Some(mut data) = stream.recv_data().await? {
        bytes += data.remaining() as u64;
        data.advance(data.remaining());
    }
    ensure!(bytes > 0, "the page is empty");
    Ok(bytes)
}

fn configuration() -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    // The server is the laboratory's, in a namespace, and signs its own certificate.
    let anyone = mgmt::stream::tls::accept_any_server(&provider);
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(anyone)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // Each connection has a whole handshake, as the first one.
    tls.resumption = Resumption::disabled();
    let quic = QuicClientConfig::try_from(tls).context("no cipher of QUIC")?;
    Ok(ClientConfig::new(Arc::new(quic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_an_error_that_says_so() {
        // Its port is taken, and nobody reads.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let load = Load {
            server: silent.local_addr().unwrap(),
            page: "/page".to_owned(),
            connections: 2,
            seconds: 1,
            timeout: 1,
            fresh: false,
        };
        let error = format!("{:#}", main(&load).unwrap_err());
        assert_eq!(error, "no request was answered: no answer within 1s");
    }
}
