//! A shaped link to a network namespace, in which the server runs.

use std::process::Command;

/// The addresses of the two ends, in a range that is reserved for benchmarks (RFC 2544).
const HERE: &str = "198.18.77.1";
const THERE: &str = "198.18.77.2";

/// A namespace at the other end of a shaped link. Both are removed when it is dropped.
pub struct ShapedLink {
    namespace: String,
    rate: String,
}

impl ShapedLink {
    /// Makes a link of `rate`, in the format of `tc`: "1gbit".
    pub fn new(rate: &str) -> Self {
        let number = std::process::id();
        let (namespace, near, far) =
            (format!("foreload-{number}"), format!("fl{number}a"), format!("fl{number}b"));
        let link = Self { namespace: namespace.clone(), rate: rate.to_owned() };
        let there = |rest: &str| ip(&format!("-n {namespace} {rest}"));
        ip(&format!("netns add {namespace}"));
        ip(&format!("link add {near} type veth peer name {far} netns {namespace}"));
        ip(&format!("addr add {HERE}/30 dev {near}"));
        ip(&format!("link set {near} up"));
        there(&format!("addr add {THERE}/30 dev {far}"));
        there(&format!("link set {far} up"));
        there("link set lo up");
        run(
            "tc",
            &format!("-n {namespace} qdisc replace dev {far} root tbf rate {rate} burst 256k latency 20ms"),
        );
        link
    }

    /// The address at which the server must listen.
    pub fn server_address(&self) -> String {
        format!("{THERE}:0")
    }

    /// The rate, as it was given.
    pub fn rate(&self) -> &str {
        &self.rate
    }

    /// The rate in bytes per second.
    pub fn bytes_a_second(&self) -> f64 {
        let (unit, bits) = [("gbit", 1e9), ("mbit", 1e6)]
            .into_iter()
            .find(|(unit, _)| self.rate.ends_with(unit))
            .expect("a rate in gbit or mbit");
        self.rate.trim_end_matches(unit).parse::<f64>().expect("a number before the unit") * bits / 8.0
    }
}

impl Drop for ShapedLink {
    fn drop(&mut self) {
        // The link is removed with the namespace of its other end.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

/// The command that runs this program at the other end of `link`.
pub fn command(link: Option<&ShapedLink>) -> Command {
    let program = std::env::current_exe().expect("this program");
    match link {
        None => Command::new(program),
        Some(link) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &link.namespace]).arg(program);
            command
        }
    }
}

fn ip(arguments: &str) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split(' ')).status();
    let done = status.is_ok_and(|status| status.success());
    assert!(
        done,
        "`{program} {arguments}` failed: a shaped link needs iproute2 and the right to make namespaces"
    );
}
