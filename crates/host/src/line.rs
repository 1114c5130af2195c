//! Tasks that wait for one of a few threads.

use std::collections::VecDeque;

/// A line of tasks for some threads. An owner of tasks has at most half of the threads that other
/// owners leave, however many tasks it has, so that the next owner finds one. Tasks of no owner
/// have no limit.
pub(crate) struct Line<T> {
    tasks: VecDeque<Option<(Option<u64>, T)>>,
    threads: usize,
    /// The owner of each task that a thread has now.
    under_way: Vec<u64>,
}

impl<T> Line<T> {
    /// A line with room for `most` tasks before it allocates; all its memory is written.
    pub(crate) fn new(most: usize, threads: usize) -> Line<T> {
        let mut tasks = VecDeque::with_capacity(most);
        tasks.extend((0..most).map(|_| None));
        tasks.clear();
        let mut under_way = vec![0; threads];
        under_way.clear();
        Line { tasks, threads, under_way }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn put(&mut self, owner: Option<u64>, task: T) {
        self.tasks.push_back(Some((owner, task)));
    }

    /// Takes the oldest task whose owner may have a thread, and counts it until [`Line::done`].
    pub(crate) fn take(&mut self) -> Option<(Option<u64>, T)> {
        let is_next = |task: &Option<(Option<u64>, T)>| {
            task.as_ref().is_some_and(|(owner, _)| owner.is_none_or(|owner| self.grants(owner)))
        };
        let at = self.tasks.iter().position(is_next)?;
        let (owner, task) = self.tasks.remove(at).flatten()?;
        self.under_way.extend(owner);
        Some((owner, task))
    }

    fn grants(&self, owner: u64) -> bool {
        let has = self.under_way.iter().filter(|other| **other == owner).count();
        let others = self.under_way.len() - has;
        has < self.threads.saturating_sub(others).div_ceil(2)
    }

    /// A task of `owner` is done. Returns whether another one waits, which may have its turn now.
    pub(crate) fn done(&mut self, owner: Option<u64>) -> bool {
        let at = owner.and_then(|owner| self.under_way.iter().position(|it| *it == owner));
        at.map(|at| self.under_way.swap_remove(at));
        at.is_some() && !self.tasks.is_empty()
    }

    /// All tasks that wait.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.tasks.drain(..).flatten().map(|(_, task)| task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tasks that get threads until nobody may have one.
    fn taken(line: &mut Line<char>) -> String {
        std::iter::from_fn(|| line.take()).map(|(_, task)| task).collect()
    }

    #[test]
    fn an_owner_has_half_of_what_others_leave() {
        let mut line = Line::new(0, 8);
        let put = |line: &mut Line<char>, tasks: &str| {
            tasks.chars().for_each(|task| line.put(Some(task.into()), task));
        };
        put(&mut line, "aaaaaaaaaaaa");
        assert_eq!(taken(&mut line), "aaaa");
        put(&mut line, "bbbbccdd");
        // Behind those of the first owner, which wait on.
        assert_eq!(taken(&mut line), "bbcd");
        assert_eq!(line.len(), 8 + 4);
        assert!(line.done(Some('c'.into())));
        assert_eq!(taken(&mut line), "c");
        // Others have four of eight now: the first owner has more than half of the rest, until
        // two of its tasks are done. So another owner finds a thread.
        assert!(line.done(Some('a'.into())));
        assert_eq!(taken(&mut line), "");
        put(&mut line, "e");
        assert_eq!(taken(&mut line), "e");
        for left in ["", "a"] {
            assert!(line.done(Some('a'.into())));
            assert_eq!(taken(&mut line), left);
        }
    }

    #[test]
    fn one_thread_is_for_any_owner_and_tasks_of_nobody_have_no_limit() {
        let mut line = Line::new(4, 1);
        line.put(Some(7), 'a');
        line.put(Some(7), 'b');
        line.put(None, 'n');
        line.put(None, 'm');
        assert_eq!(taken(&mut line), "anm");
        assert!(!line.done(None));
        assert!(line.done(Some(7)));
        assert_eq!((taken(&mut line), line.done(Some(7))), ("b".into(), false));
        line.put(Some(7), 'c');
        assert_eq!(line.drain(), ['c']);
    }
}
