//! Bootstrap data of machines that kubeadm makes Nodes: cloud-config and Ignition. Pure.
