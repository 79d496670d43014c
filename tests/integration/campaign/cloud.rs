//! The campaign's cloud. It answers every daemon with the true state, or with what a fault makes of it.

use std::time::Duration;

use futures::{SinkExt, channel::mpsc};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    provider::{Answer, Asked, Change, Question, Reply},
    world::{Machine, SCHEME, Told, World},
};

/// Listens on a port of 127.0.0.1 until dropped.
#[derive(Debug)]
pub(super) struct Cloud {
    pub(super) port: u16,
    changes: broadcast::Sender<Change>,
    streams: parking_lot::Mutex<CancellationToken>,
    _accepting: AbortOnDropHandle<()>,
}

impl Cloud {
    pub(super) async fn start(world: World) -> anyhow::Result<std::sync::Arc<Self>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let changes = broadcast::channel(4096).0;
        let (accepted, mut accepting) = mpsc::channel::<TcpStream>(64);
        let task = tokio::spawn(async move {
            let mut accepted = accepted;
            while let Ok((stream, _)) = listener.accept().await {
                if accepted.send(stream).await.is_err() {
                    return;
                }
            }
        });
        let cloud = std::sync::Arc::new(Self {
            port,
            changes,
            streams: parking_lot::Mutex::default(),
            _accepting: AbortOnDropHandle::new(task),
        });
        tokio::spawn({
            let cloud = std::sync::Arc::downgrade(&cloud);
            async move {
                while let Some(stream) = futures::StreamExt::next(&mut accepting).await {
                    let Some(cloud) = cloud.upgrade() else { return };
                    let world = world.clone();
                    let changes = cloud.changes.subscribe();
                    let cut = cloud.cut().clone();
                    // An error means that the client has gone.
                    tokio::spawn(async move { serve(stream, world, changes, cut).await.ok() });
                }
            }
        });
        Ok(cloud)
    }

    /// Reports a change of this machine, or of all machines.
    pub(super) fn push(&self, uuid: Option<String>) {
        let _ = self.changes.send(Change { uuid });
    }

    /// Breaks the streams of changes.
    pub(super) fn lose_streams(&self) {
        std::mem::take(&mut *self.cut()).cancel();
    }

    fn cut(&self) -> parking_lot::MutexGuard<'_, CancellationToken> {
        self.streams.lock()
    }
}

async fn serve(
    mut stream: TcpStream,
    world: World,
    mut changes: broadcast::Receiver<Change>,
    cut: CancellationToken,
) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    let Some(line) = lines.next_line().await? else { return Ok(()) };
    let question: Question = serde_json::from_str(&line)?;
    let mut send = async |text: String| writer.write_all(format!("{text}\n").as_bytes()).await;
    let Some(nodes) = question.nodes else {
        // Earlier changes may have been missed.
        send(serde_json::to_string(&Change { uuid: None })?).await?;
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = cut.cancelled() => return Ok(()),
                // the client has gone
                _ = lines.next_line() => return Ok(()),
            };
            match change {
                Ok(change) => send(serde_json::to_string(&change)?).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    send(serde_json::to_string(&Change { uuid: None })?).await?;
                }
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            }
        }
    };
    let delay = world.lock().cloud.delay;
    if delay > Duration::ZERO {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            // the client has given up
            _ = lines.next_line() => return Ok(()),
        }
    }
    let reply = answer(&world, question.life, &nodes);
    send(serde_json::to_string(&reply)?).await?;
    Ok(())
}

/// The answers, from the current true (or claimed) state.
fn answer(world: &World, life: u32, nodes: &[Asked]) -> Reply {
    let mut state = world.lock();
    let mode = state.cloud.clone();
    if mode.panic {
        for node in nodes.iter().filter(|node| node.provider_id.is_some()) {
            state.note_told(life, &node.uid, Told::Unknown);
        }
        return Reply::Panic;
    }
    let mut answers = Vec::new();
    for node in nodes {
        let by_id = node.provider_id.as_deref().map(|id| id.trim_start_matches(SCHEME));
        let slot = by_id.or(node.system_uuid.as_deref()).and_then(|uuid| state.by_uuid(uuid));
        let answer = match (mode.error, slot) {
            (Some(kind), _) => Answer::Unknown(kind.to_owned()),
            (None, None) => Answer::Absent,
            (None, Some(slot)) if slot.failing => Answer::Unknown("internal".to_owned()),
            (None, Some(slot)) if slot.is_absent_by_claim() => Answer::Absent,
            (None, Some(slot)) => Answer::Present {
                uuid: slot.uuid(),
                off: slot.machine == Machine::Off,
                instance_type: slot.instance_type(),
                address: slot.address(),
            },
        };
        let told = match answer {
            _ if mode.short => Told::Unknown,
            Answer::Absent => Told::Absent,
            Answer::Present { .. } => Told::Present,
            Answer::Unknown(_) => Told::Unknown,
        };
        // A Node without a provider ID is never judged.
        if node.provider_id.is_some() {
            state.note_told(life, &node.uid, told);
        }
        answers.push(answer);
    }
    if mode.short {
        answers.pop();
    }
    Reply::Answers(answers)
}
