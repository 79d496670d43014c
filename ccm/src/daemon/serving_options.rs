//! The options of the secure port from the command line.

use component::{
    command_line::{AuthenticationFlags, AuthorizationFlags},
    serving::{
        AuthenticationOptions, AuthorizationOptions, CertificateOptions, RequestHeaderOptions,
        ServingOptions, TlsOptions,
    },
};

use super::{COMPONENT, configz::configz};
use crate::flags::{Flags, SecureServingFlags};

impl From<&Flags> for ServingOptions {
    fn from(flags: &Flags) -> Self {
        // All fields are named, so that a new flag is a compile error until it is handled here.
        let SecureServingFlags {
            bind_address,
            secure_port: _,
            disable_http2_serving,
            cert_dir,
            tls_cert_file,
            tls_private_key_file,
            tls_cipher_suites,
            tls_curve_preferences: _,
            tls_min_version,
            tls_sni_cert_key,
            http2_max_streams_per_connection,
            permit_port_sharing,
            permit_address_sharing,
        } = flags.secure_serving.clone();
        let gates = &flags.generic.feature_gates;
        Self {
            component: COMPONENT,
            bind_address,
            secure_port: flags.secure_serving.port().unwrap_or_default(),
            permit_port_sharing,
            permit_address_sharing,
            disable_http2_serving,
            http2_max_streams_per_connection: http2_max_streams_per_connection.try_into().unwrap_or_default(),
            certificates: CertificateOptions {
                cert_dir,
                pair_name: COMPONENT,
                tls_cert_file,
                tls_private_key_file,
                tls_sni_cert_key,
                flags: "",
            },
            tls: TlsOptions {
                tls_min_version,
                tls_cipher_suites,
                tls_curve_preferences: flags.secure_serving.curves().to_vec(),
            },
            authentication: authentication(flags.authentication.clone()),
            authorization: authorization(flags.authorization.clone()),
            profiling: flags.debugging.profiling,
            configz: configz(flags),
            statusz: gates.enabled("ComponentStatusz").then(|| flags.version().to_owned()),
            flagz: gates.enabled("ComponentFlagz").then(|| flags.shown().clone()),
        }
    }
}

fn authentication(flags: AuthenticationFlags) -> AuthenticationOptions {
    let AuthenticationFlags {
        kubeconfig,
        skip_lookup,
        token_webhook_cache_ttl,
        tolerate_lookup_failure,
        client_ca_file,
        requestheader_allowed_names,
        requestheader_client_ca_file,
        requestheader_extra_headers_prefix,
        requestheader_group_headers,
        requestheader_uid_headers,
        requestheader_username_headers,
    } = flags;
    AuthenticationOptions {
        kubeconfig,
        skip_lookup,
        tolerate_lookup_failure,
        token_webhook_cache_ttl,
        client_ca_file,
        request_header: RequestHeaderOptions {
            client_ca_file: requestheader_client_ca_file,
            allowed_names: requestheader_allowed_names,
            username_headers: requestheader_username_headers,
            group_headers: requestheader_group_headers,
            extra_headers_prefix: requestheader_extra_headers_prefix,
            uid_headers: requestheader_uid_headers,
        },
    }
}

fn authorization(flags: AuthorizationFlags) -> AuthorizationOptions {
    let AuthorizationFlags {
        always_allow_paths,
        kubeconfig,
        webhook_cache_authorized_ttl,
        webhook_cache_unauthorized_ttl,
    } = flags;
    AuthorizationOptions {
        kubeconfig,
        authorized_ttl: webhook_cache_authorized_ttl,
        unauthorized_ttl: webhook_cache_unauthorized_ttl,
        always_allow_paths,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    fn options(arguments: &[&str]) -> ServingOptions {
        let all = ["ccm", "--cloud-provider=x"].iter().chain(arguments);
        ServingOptions::from(&flags::parse(all).expect("a good command line"))
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        let options = options(&[]);
        let (configz, flagz) = (options.configz.clone(), options.flagz.clone());
        let defaults =
            ServingOptions { configz, flagz, ..ServingOptions::new("cloud-controller-manager", 10258) };
        assert_eq!(options, defaults);
    }

    #[test]
    fn each_flag_has_its_place() {
        let options = options(&[
            "--bind-address=::1",
            "--secure-port=0",
            "--tls-sni-cert-key=a.crt,a.key:x.com",
            "--tls-sni-cert-key=b.crt,b.key",
            "--tls-curve-preferences=29,23",
            "--authorization-always-allow-paths=",
            "--requestheader-allowed-names=front-proxy,other",
            "--profiling=false",
            "--feature-gates=ComponentStatusz=false,ComponentFlagz=false",
        ]);
        assert_eq!((options.bind_address.to_string().as_str(), options.secure_port), ("::1", 0));
        assert_eq!(options.certificates.tls_sni_cert_key.len(), 2);
        assert_eq!(options.tls.tls_curve_preferences, [29, 23]);
        assert!(options.authorization.always_allow_paths.is_empty(), "can be cleared");
        assert_eq!(options.authentication.request_header.allowed_names, ["front-proxy", "other"]);
        assert!(!options.profiling);
        assert_eq!((options.statusz, options.flagz), (None, None));
    }
}
