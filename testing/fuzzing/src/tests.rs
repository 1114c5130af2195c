use crate::nbd_client::Conversation;
use crate::{TARGETS, nbd_requests};
use block::{Checked, Plain};
use std::sync::Arc;

/// One WRITE of eight bytes' description, then a READ.
const INPUT: &[u8] = &[7, 1, 0, 4, 0, 0x10, 0, 1, 0, 0, 0, 4, 0, 0x10, 0, 1, 0];

fn answered() -> (Conversation, Vec<u8>) {
    let conversation = Conversation::from_fuzz(INPUT);
    let device = Arc::new(Checked::new(Plain::new(crate::nbd_client::DEVICE_BYTES)));
    let output = nbd::drive(&conversation.bytes, device);
    (conversation, output)
}

#[test]
fn good_answers_pass() {
    let (conversation, output) = answered();
    assert_eq!(conversation.requests.as_ref().map(Vec::len), Some(2));
    assert_eq!(conversation.check(&output), Ok(()));
    nbd_requests(INPUT);
}

#[test]
fn a_cut_off_answer_is_noticed() {
    let (conversation, output) = answered();
    for length in 0..output.len() {
        assert!(conversation.check(&output[..length]).is_err(), "{length} of {}", output.len());
    }
}

#[test]
fn an_answer_too_many_is_noticed() {
    let (conversation, mut output) = answered();
    let mut stray = 0x6744_6698u32.to_be_bytes().to_vec();
    stray.extend([0; 4]);
    stray.extend(0xdead_beefu64.to_be_bytes());
    output.extend(stray);
    assert!(conversation.check(&output).is_err());
}

#[test]
fn every_seed_runs() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(seeds.len() >= 4, "{}", target.name);
        for seed in seeds {
            (target.run)(&seed);
        }
    }
}
