use super::*;

fn there(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn here() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

fn take(slots: &Slots, address: IpAddr) -> Arc<Slot> {
    Arc::new(slots.take(Source::of(address, None), address))
}

fn are_open<const N: usize>(slots: [&Arc<Slot>; N]) -> [bool; N] {
    slots.map(|slot| !slot.evicted.is_cancelled())
}

/// A connection with one request that was answered.
fn kept(slots: &Slots, address: IpAddr) -> Arc<Slot> {
    let slot = take(slots, address);
    slot.heard();
    drop(slot.request(0));
    slot
}

#[tokio::test(start_paused = true)]
async fn who_was_not_answered_yet_stays() {
    let slots = Slots::new(100, 2, u64::MAX);
    let (busy, new) = (kept(&slots, there(1)), take(&slots, there(1)));
    new.heard();
    // It is evicted although it has the most recent activity.
    drop(busy.request(0));
    let third = take(&slots, there(1));
    third.heard();
    assert_eq!(are_open([&busy, &new, &third]), [false, true, true]);
    tokio::time::advance(GRACE).await;
    drop(third.request(0));
    let fourth = take(&slots, there(1));
    assert_eq!(are_open([&new, &third, &fourth]), [false, true, true], "it had its time");
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_is_waited_for_again() {
    let slots = Slots::new(100, 2, u64::MAX);
    let prometheus = kept(&slots, there(1));
    tokio::time::advance(GRACE * 10).await;
    let (first, second) = (prometheus.request(0), prometheus.request(0));
    let attackers = [0; 4].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&prometheus, &attackers[2], &attackers[3]]), [true, false, true]);
    drop(first);
    let more = [0; 4].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&prometheus, &more[3]]), [true, true], "one of two is answered");
    drop(second);
    let _more = [0; 4].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&prometheus]), [false], "both are");
    let slots = Slots::new(100, 2, u64::MAX);
    let slow = take(&slots, there(1));
    let _request = slow.request(0);
    tokio::time::advance(GRACE).await;
    let _more = [0; 2].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&slow]), [false], "it had its time");
}

#[tokio::test(start_paused = true)]
async fn who_has_not_taken_the_response_stays() {
    let slots = Slots::new(100, 2, u64::MAX);
    let slow = kept(&slots, there(1));
    slow.unsent(true);
    let attackers = [0; 4].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&slow, &attackers[2], &attackers[3]]), [true, false, true]);
    slow.unsent(false);
    let _more = [0; 2].map(|_| kept(&slots, there(1)));
    assert_eq!(are_open([&slow]), [false], "it has everything");
    let never = kept(&slots, there(2));
    never.unsent(true);
    tokio::time::advance(GRACE).await;
    let _more = [0; 2].map(|_| kept(&slots, there(2)));
    assert_eq!(are_open([&never]), [false], "it had its time");
}

#[tokio::test(start_paused = true)]
async fn who_asks_once_stays_where_others_ask_without_end() {
    let slots = Slots::new(100, 3, u64::MAX);
    let prometheus = kept(&slots, there(1));
    tokio::time::advance(GRACE * 10).await;
    let _scrape = prometheus.request(0);
    let attackers = [0; 2].map(|_| take(&slots, there(1)));
    for _ in 0..20 {
        // The attackers have more than one request in progress, so that they always wait for one.
        let _requests = attackers.each_ref().map(|attacker| (attacker.request(0), attacker.request(0)));
        tokio::time::advance(GRACE / 50).await;
    }
    let _requests = attackers.each_ref().map(|attacker| attacker.request(0));
    let newcomer = take(&slots, there(1));
    assert_eq!(are_open([&prometheus, &attackers[0], &attackers[1], &newcomer]), [true, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn whom_we_owe_an_answer_stays_where_others_take_none() {
    let slots = Slots::new(100, 3, u64::MAX);
    let prometheus = take(&slots, there(1));
    let _scrape = prometheus.request(0);
    let attackers = [0; 2].map(|_| take(&slots, there(1)));
    let _untaken = attackers.each_ref().map(|one| one.request(0).answered(1));
    let newcomer = take(&slots, there(1));
    assert_eq!(are_open([&prometheus, &attackers[0], &attackers[1]]), [true, false, true]);
    // The same with attackers that send nothing, or never finish their handshakes.
    let _silent = [0; 9].map(|_| take(&slots, there(1)));
    let begun = [0; 9].map(|_| take(&slots, there(1)));
    for one in &begun {
        one.heard();
    }
    assert_eq!(are_open([&prometheus, &newcomer]), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn less_is_lost_with_some_than_with_others() {
    let slots = Slots::new(100, 16, u64::MAX);
    let owed = take(&slots, there(1));
    let _owed = owed.request(0);
    let handshake = take(&slots, there(1));
    handshake.heard();
    let answered = take(&slots, there(1));
    let _answered = answered.request(0).answered(1);
    let silent = take(&slots, there(1));
    let idle = kept(&slots, there(1));
    // The older a connection is here, the later it is evicted: its standing decides.
    let all = [&idle, &silent, &answered, &handshake, &owed];
    for gone in 0..all.len() - 1 {
        slots.evict_one_of(&mut slots.lock(), |_| true);
        assert_eq!(are_open(all), std::array::from_fn(|index| index > gone));
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_stays_where_others_have_us_owe_them() {
    type Ask = fn(&Arc<Slot>) -> Option<UnderWay>;
    let all = 32;
    let asks: [Ask; 3] = [
        |slot| Some(slot.request(0)),
        |slot| Some(slot.request(0).answered(1)),
        |slot| {
            slot.heard();
            None
        },
    ];
    for ask in asks {
        let slots = Slots::new(100, all, u64::MAX);
        let attackers: Vec<_> = (0..all).map(|_| take(&slots, there(1))).collect();
        let _asked: Vec<_> = attackers.iter().map(ask).collect();
        let newcomer = take(&slots, there(1));
        let next = take(&slots, there(1));
        next.heard();
        let _next = ask(&next);
        assert_eq!(
            are_open([&newcomer, &attackers[0], &attackers[1], &attackers[2]]),
            [true, false, false, true]
        );
        // The newcomer gets its turn, and its request stays beside those of the attackers.
        newcomer.heard();
        let _request = newcomer.request(0);
        let more: Vec<_> = (0..all / 2 - 1).map(|_| take(&slots, there(1))).collect();
        let _more: Vec<_> = more.iter().map(ask).collect();
        assert_eq!(are_open([&newcomer]), [true]);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_long_ago_do_not_count() {
    let ask = |slot: &Arc<Slot>, count: u32| (0..count).for_each(|_| drop(slot.request(0)));
    let slots = Slots::new(100, 2, u64::MAX);
    let (often, once) = (take(&slots, there(1)), kept(&slots, there(1)));
    ask(&often, 2 * FEW_REQUESTS);
    let _newcomer = take(&slots, there(1));
    assert_eq!(are_open([&often, &once]), [true, false], "both are idle");
    let slots = Slots::new(100, 8, u64::MAX);
    let (often, once) = (take(&slots, there(1)), take(&slots, there(1)));
    ask(&often, 2 * FEW_REQUESTS);
    tokio::time::advance(GRACE / 2).await;
    let _requests = [once.request(0), often.request(0)];
    tokio::time::advance(GRACE / 2).await;
    slots.evict_one_of(&mut slots.lock(), |_| true);
    assert_eq!(are_open([&often, &once]), [true, false], "they began before");
}

#[tokio::test(start_paused = true)]
async fn who_has_just_come_stays() {
    let slots = Slots::new(100, 2, u64::MAX);
    let (new, busy) = (take(&slots, there(1)), kept(&slots, there(1)));
    // The new connection has sent nothing yet, and the others had activity later.
    let other = kept(&slots, there(1));
    assert_eq!(are_open([&new, &busy, &other]), [true, false, true]);
    tokio::time::advance(SILENT_GRACE).await;
    let _last = kept(&slots, there(1));
    assert_eq!(are_open([&new, &other]), [false, true], "who says nothing goes first");
}

#[tokio::test]
async fn one_address_does_not_take_all() {
    let slots = Slots::new(100, 2, u64::MAX);
    let (first, second, other) = (take(&slots, there(1)), take(&slots, there(1)), take(&slots, there(2)));
    first.heard();
    let third = take(&slots, there(1));
    assert_eq!(are_open([&first, &second, &third, &other]), [true, false, true, true]);
    let fourth = take(&slots, there(1));
    assert_eq!(are_open([&first, &third, &fourth, &other]), [true, false, true, true]);
}

#[tokio::test]
async fn who_has_most_makes_room() {
    let slots = Slots::new(4, 3, u64::MAX);
    let single = take(&slots, there(2));
    let crowd = [0; 3].map(|_| take(&slots, there(1)));
    let newcomer = take(&slots, there(3));
    assert_eq!(are_open([&crowd[0], &crowd[1], &single, &newcomer]), [false, true, true, true]);
}

#[tokio::test(start_paused = true)]
async fn who_has_few_is_not_thrown_out_by_many_who_have_one() {
    let slots = Slots::new(20, 32, u64::MAX);
    let _attackers: Vec<_> = (3..21).map(|last| kept(&slots, there(last))).collect();
    let pair = [0; 2].map(|_| kept(&slots, there(1)));
    let newcomer = take(&slots, there(2));
    assert_eq!(are_open([&pair[0], &pair[1], &newcomer]), [true; 3]);
}

#[tokio::test]
async fn in_one_network_the_address_with_most_makes_room() {
    let slots = Slots::new(100, 4, u64::MAX);
    let at = |address: &str| take(&slots, address.parse().expect("an address"));
    let honest = at("2001:db8::1");
    let attackers = [at("2001:db8::2"), at("2001:db8::2"), at("2001:db8::2")];
    let newcomer = at("2001:db8::1");
    assert_eq!(are_open([&honest, &attackers[0], &attackers[1], &newcomer]), [true, false, true, true]);
    // The same with connections from this machine.
    let at = |last: u8| take(&slots, IpAddr::from([127, 0, 0, last]));
    let probe = at(1);
    let attackers = [at(2), at(2), at(2), at(2)];
    assert_eq!(are_open([&probe, &attackers[0], &attackers[1]]), [true, false, true]);
}

#[tokio::test]
async fn nobody_else_takes_the_places_of_here() {
    let slots = Slots::new(2, 2, u64::MAX);
    let others = [take(&slots, there(1)), take(&slots, there(2))];
    let ours = [take(&slots, here()), take(&slots, here())];
    assert_eq!(are_open([&others[0], &others[1], &ours[0], &ours[1]]), [true; 4]);
    let probe = take(&slots, here());
    assert_eq!(are_open([&ours[0], &ours[1], &probe]), [false, true, true]);
    let crowd = [0; 5].map(|_| take(&slots, there(3)));
    assert_eq!(
        are_open([&others[0], &others[1], &ours[1], &probe, &crowd[4]]),
        [false, false, true, true, true]
    );
}

#[tokio::test]
async fn a_place_is_free_again() {
    let slots = Slots::new(2, 2, u64::MAX);
    let taken = [take(&slots, there(1)), take(&slots, here())];
    drop(taken);
    assert!(slots.lock().connections.is_empty());
}

/// Memory for this many connections, and `beside` more bytes.
fn memory(connections: u64, beside: u64) -> u64 {
    connections * CONNECTION_MEMORY + beside
}

#[tokio::test(start_paused = true)]
async fn who_holds_most_makes_room() {
    const PART: u64 = 1 << 20;
    let slots = Slots::new(100, 100, memory(6, 8 * PART));
    let prometheus = take(&slots, there(1));
    let scrape = prometheus.request(0);
    let large = prometheus.hold(PART);
    let attackers = [2, 2, 2, 3].map(|last| take(&slots, there(last)));
    let held = attackers.each_ref().map(|attacker| attacker.hold(2 * PART - REQUEST_MEMORY));
    let [one, other, third, single] = attackers.each_ref();
    assert_eq!(are_open([&prometheus, one, other, third, single]), [true, false, true, true, true]);
    let newcomer = take(&slots, there(4));
    let answer = newcomer.hold(2 << 20);
    assert_eq!(are_open([&prometheus, &newcomer, other, third]), [true, true, false, true]);
    assert!(slots.lock().held <= slots.memory);
    drop((scrape, large, answer));
    drop((prometheus, newcomer, attackers, held));
    assert_eq!(slots.lock().held, 0);
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_makes_room_for_who_has_just_asked() {
    const PART: u64 = 1 << 20;
    let slots = Slots::new(100, 100, memory(12, 10 * PART));
    let answer = |slot: &Arc<Slot>| slot.request(0).answered(1 << 20);
    // All clients have one address.
    let kept = kept(&slots, there(1));
    let attackers = [0; 9].map(|_| take(&slots, there(1)));
    let _answers = attackers.each_ref().map(answer);
    let honest = take(&slots, there(1));
    let _answer = answer(&honest);
    assert_eq!(are_open([&honest, &kept, &attackers[0], &attackers[1]]), [true, true, false, true]);
}

#[tokio::test]
async fn all_hold_no_more_than_there_is() {
    let slots = Slots::new(1000, 1000, memory(20, 0));
    let mut open = Vec::new();
    for last in 0..100 {
        let slot = take(&slots, there(last));
        let held = slot.hold(u64::from(last) * 1000);
        open.push((held, slot));
        assert!(slots.lock().held <= slots.memory);
    }
    assert!(slots.lock().connections.len() > 10);
    // A connection that holds more than the limit is evicted itself.
    let slot = take(&slots, there(200));
    let _held = slot.hold(slots.memory);
    assert_eq!(are_open([&slot]), [false]);
    assert!(slots.lock().held <= slots.memory);
    open.clear();
    assert_eq!(slots.lock().held, 0);
}
