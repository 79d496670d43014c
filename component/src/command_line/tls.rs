//! What the flags of both TLS ports share: Go's names.

/// Cipher suites that rustls has too.
const SUITES: [&str; 11] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Cipher suites that only Go has: CBC modes, RC4, and key exchange by RSA.
const SUITES_OF_GO: [&str; 17] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
    // Not a cipher suite itself, but clients may list it.
    "TLS_FALLBACK_SCSV",
];

/// Key exchanges by their numbers in Go: first P-256, P-384 and X25519, which rustls has, then those that
/// only Go has.
const CURVES: [i32; 3] = [23, 24, 29];
const CURVES_OF_GO: [i32; 4] = [25, 4587, 4588, 4589];

const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// The faults of a port's flags, in upstream's words. The names of the flags begin with `prefix`.
pub fn faults(prefix: &str, suites: &[String], curves: &[i32], version: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for suite in suites {
        if !SUITES.contains(&suite.as_str()) && !SUITES_OF_GO.contains(&suite.as_str()) {
            faults.push(format!(
                "Cipher suite {suite} not supported or doesn't exist (--{prefix}tls-cipher-suites)"
            ));
        }
    }
    for (index, curve) in curves.iter().enumerate() {
        let fault = if *curve <= 0 || *curve > i32::from(u16::MAX) {
            format!("curve preference {curve} is out of range (must be 1-65535)")
        } else if curves[..index].contains(curve) {
            format!("duplicate curve preference {curve}")
        } else if !CURVES.contains(curve) && !CURVES_OF_GO.contains(curve) {
            format!("curve preference {curve} is not supported")
        } else {
            continue;
        };
        faults.push(format!("{fault} (--{prefix}tls-curve-preferences)"));
    }
    if !version.is_empty() && !VERSIONS.contains(&version) {
        faults.push(format!(
            "unknown tls version {version:?} (--{prefix}tls-min-version; expected one of {})",
            VERSIONS.join(", ")
        ));
    }
    faults
}

/// Warnings about values that are not available, one for each flag.
pub fn warnings(suites: &[String], curves: &[i32], version: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let missing: Vec<&str> =
        suites.iter().map(String::as_str).filter(|suite| SUITES_OF_GO.contains(suite)).collect();
    if !missing.is_empty() {
        warnings.push(format!(
            "--tls-cipher-suites: not offered here, because insecure or outdated: {}",
            missing.join(", ")
        ));
    }
    let missing: Vec<String> =
        curves.iter().filter(|curve| CURVES_OF_GO.contains(curve)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let instead = if curves.iter().any(|curve| CURVES.contains(curve)) {
            ""
        } else {
            "; 29, 23 and 24 are offered"
        };
        warnings.push(format!("--tls-curve-preferences: not offered here: {missing}{instead}"));
    }
    if ["VersionTLS10", "VersionTLS11"].contains(&version) {
        warnings.push(format!("--tls-min-version={version}: TLS 1.2 is the oldest version that is served"));
    }
    warnings
}
