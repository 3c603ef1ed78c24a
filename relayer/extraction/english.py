"""The English words and phrases that the rules of `relayer.extraction.rules` look for.

Chosen by hand from how people talk to each other and to assistants; each set is one kind of cue. Phrases are lower
case, with a plain apostrophe.
"""

from __future__ import annotations

from relayer.extraction.words import Phrases, word_set

__all__ = [
    "ADVICE_OPENERS",
    "AGREEMENT",
    "COMMANDS",
    "COMMITMENTS",
    "DATES",
    "DECISIONS",
    "ELIDED_FIRST_PERSON",
    "EMPTY_WORDS",
    "FINDINGS",
    "FIRST_PERSON",
    "FIRST_PERSON_SUBJECT",
    "GREETINGS",
    "HEDGED_FIRST_PERSON",
    "INSTRUCTIONS",
    "INTERJECTIONS",
    "MEASURES",
    "MEMORY_CUES",
    "NAMING",
    "NUMBER_WORDS",
    "OFFERS",
    "PARTINGS",
    "POSSESSIVES",
    "PRAISE_OPENERS",
    "PREFERENCES",
    "RESTATEMENTS",
    "TASKS",
    "THIRD_PERSON_SUBJECT",
    "WORK_DONE",
]

FIRST_PERSON = word_set(
    """i i'm i've i'd i'll im ive my mine me myself we we're we've we'd we'll our ours us ourselves"""
)
FIRST_PERSON_SUBJECT = word_set("i i'm i've i'd i'll im ive my we we're we've we'd we'll our")
POSSESSIVES = word_set("my mine our ours")

ELIDED_FIRST_PERSON = word_set(
    """been took got went gonna planning thinking trying working researching started finished had spent made met found
    bought moved tried joined learned learnt signed wish heading reading watching learning playing building looking
    hoping considering struggling dealing visited volunteering lost won quit switched saw"""
)
NAMING = Phrases(
    """is called, are called, was called, is named, are named, lives in, live in, lives at, lives under, is stored in,
    are stored in, is kept in, runs on, belongs to, goes to, stands for, is short for, is at, is on, is hosted"""
)
THIRD_PERSON_SUBJECT = Phrases(
    """he, she, they, it, it's, he's, she's, they're, his, her, their, its, the, a, an, this, these, one of, some of,
    most of, both, all of, each, every, everyone, there's, there are, there is, there was, there were, another"""
)

INTERJECTIONS = Phrases(
    """oh, wow, woah, whoa, yeah, yep, yup, yes, no, nope, nah, hey, hi, hello, hiya, ok, okay, sure, right, alright, lol,
    haha, hahaha, hehe, hmm, hm, ah, aw, aww, ooh, omg, gosh, man, dude, bro, buddy, cool, nice, great, awesome, amazing,
    perfect, excellent, lovely, sweet, wonderful, fantastic, brilliant, neat, wicked, super, yay, congrats,
    congratulations, thanks, thank you, thx, ty, cheers, please, well, so, anyway, anyways, absolutely, definitely,
    exactly, totally, indeed, true, agreed, of course, for sure, no way, no problem, no worries, got it, gotcha, i see,
    fair enough, makes sense, sounds good, good point, good idea, good call, nice one, thanks a lot, thanks so much,
    thank you so much, thanks again, many thanks, much appreciated, you're welcome, my pleasure, np, lgtm, brb,
    good morning, good evening, good afternoon, good night, and, but, well done, good job, great job, nice job, nice work,
    great work, great question, good question, great choice"""
)
EMPTY_WORDS = word_set(
    """a about actually after again all also am an and any are as at be been being but by can could did do does doing
    for from get getting go going gonna got had has have he her here him his how if in into is it its it's just kinda
    know let like lot lots make makes making more most much my never no not now of off oh on one or our out own really
    she should so some something sounds still stuff such than that that's the their them then there these they they're
    thing things think this those to too up very was way we well were what what's when where which while who will with
    would yes you your you're i i'm i've i'd i'll me mine definitely totally super pretty quite maybe though always
    great good nice cool awesome amazing"""
)

GREETINGS = Phrases(
    """how are you, how have you been, how's it going, how is it going, what's up, what's new, long time no see,
    long time no talk, good to see you, great to see you, nice to see you, good to hear from you, great to hear from you,
    nice to hear from you, hope you're well, hope you are well, hope all is well, hope you're doing well, nice to meet you,
    good to hear, great to hear, glad to hear, happy to hear, sorry to hear, it's been a while"""
)
PARTINGS = Phrases(
    """talk to you soon, talk to you later, talk soon, talk later, see you, see ya, take care, catch you later,
    catch up soon, have a great, have a good, have a nice, have fun, good luck, best of luck, bye, goodbye, later,
    cya, ttyl, keep it up, keep up the, keep going, keep me posted, let me know, keep in touch, stay safe, enjoy your,
    enjoy the, can't wait to see, can't wait to hear, looking forward to hearing"""
)
AGREEMENT = Phrases(
    """i agree, i totally agree, i completely agree, totally agree, couldn't agree more, i know right, i hear you,
    i see, i understand, i get it, i totally get, i know what you mean, i know how, i bet, i can imagine, i can see,
    i can tell, i hope you, i hope it, i hope that, i'm sure, i am sure, i'm so happy for, i'm happy for, i'm glad you,
    i'm so glad you, i'm glad it, i'm glad to hear, i'm happy to hear, i'm so happy to hear, i'm sorry, i'm proud of you,
    i'm so proud of you, i'm really proud of you, i'm happy you, i'm here for, i'm always here, i'm rooting, i'm curious,
    i appreciate, i really appreciate, i wish you, i wonder, i was wondering, i'd love to see, i'd love to hear,
    i'd love to know, i'd like to know, i can't wait to see, i can't wait to hear, i believe in you, i knew you,
    i love that, i love how you, i love your, i like your, i admire, i've heard, i feel you, i think so,
    i guess so, i don't think so, me too, me neither, same here, same to you, you're right, you are right"""
)
HEDGED_FIRST_PERSON = Phrases(
    """let me know, tell me, show me, give me, send me, remind me what, help me, let us, let's see, my pleasure, my bad,
    my god, my goodness, my friend, makes me happy, makes me smile, thank me, trust me, believe me, between us"""
)
PRAISE_OPENERS = Phrases(
    """you, you're, you've, you'll, you'd, your, that, that's, thats, this is, this sounds, it sounds, it's great,
    it's awesome, it's amazing, it's good, it's nice, it's so, it's always, it's really, it's important, it's wonderful,
    it's cool, it must, it looks, it's no, it's awesome, it can, it'll, sounds, looks like, looks, what a, what an, how, so,
    glad, happy, love, keep, hope, must, congrats, can't wait, way to go, great, such, those, these, very, seems, seeing,
    having, taking, being, good, nice, cool, here's to, here for"""
)
COMMANDS = word_set(
    """add analyse analyze append apply ask audit build bump calculate change check clean close commit compare compile
    complete compose compute continue convert copy count create debug define delete deploy describe design diff draft
    draw edit enable estimate evaluate execute expand explain extract fetch figure fill filter find finish fix format
    generate get give go grep help implement import improve insert inspect install investigate list load look make
    measure merge mock move open optimise optimize outline parse plan plot print profile proofread pull push query read
    rebase refactor regenerate remove rename reorder replace reproduce rerun rewrite retry revert review rewrite run
    save scan search send show simplify sketch solve sort split start stop suggest summarise summarize tell test
    translate tidy trim try undo update upgrade verify walk wrap write"""
)

MEMORY_CUES = Phrases(
    """remember that, remember this, please remember, remember i, remember my, remember we, remember to, remember the,
    note that, make a note, take note, don't forget, do not forget, keep in mind, bear in mind, for the record, fyi,
    for your information, for next time, for future reference, from now on, going forward, in future, in the future,
    so you know, heads up, just so you know, remind me"""
)
INSTRUCTIONS = Phrases(
    """use, always, never, please always, please never, please don't, please do not, please use, please keep, don't ever,
    do not, don't use, don't touch, don't push, don't commit, don't send, don't schedule, don't call, don't suggest, avoid,
    prefer, stick to, stick with, make sure, whenever, every time, each time, only use, use only, no need to,
    stop using, instead of, rather than, unless i, call me, address me, keep answers, keep replies, keep it under,
    must, must not, mustn't, should always, should never, has to, have to, needs to"""
)
PREFERENCES = Phrases(
    """i like, i love, i hate, i prefer, i'd prefer, i would prefer, i'd rather, i would rather, i enjoy, i dislike,
    i can't stand, i don't like, i do not like, i'm not a fan, i'm a fan, i'm a big fan, i'm into, i'm keen on, i use,
    i always, i never, i usually, i tend to, i want, i favour, i favor, i'm allergic, i'm vegetarian, i'm vegan,
    i don't eat, i don't drink, i avoid, favourite, favorite, we prefer, we like, we always, we never, we use, prefers,
    i really like, i really love, i really enjoy, i also like, i also love, i love to, my preference, my go-to, i'm fond,
    we don't use, i don't use, i can't eat"""
)
DECISIONS = Phrases(
    """i decided, i've decided, we decided, we've decided, have decided, decided to, decided on, decided against,
    decision, we agreed, agreed on, agreed to, agreed that, settled on, settling on, going with, go with, went with,
    we chose, i chose, chosen, picked, we'll use, we will use, let's use, let's go, let's keep, let's call, let's stick,
    let's ship, let's drop, switching to, switched to, switch to, moving to, moved to, no longer, changed my mind,
    instead we, final answer, signed off, approved, rejected, ruled out, the plan is, we're dropping, cancelled,
    canceled, postponed, rescheduled, we're keeping"""
)
TASKS = Phrases(
    """need to, needs to, have to, has to, must, todo, to do, remind me, deadline, due, by monday, by tuesday,
    by wednesday, by thursday, by friday, by saturday, by sunday, by tomorrow, by next, by the end, before the end,
    i'll, i will, we'll, we will, going to, gonna, plan to, planning to, planning on, scheduled for, scheduled, i should,
    we should, i promised, follow up"""
)
DATES = Phrases(
    """yesterday, today, tonight, tomorrow, last night, last week, last weekend, last month, last year, last summer,
    last winter, last spring, last fall, last autumn, next week, next weekend, next month, next year, next summer,
    this morning, this afternoon, this evening, this week, this weekend, this month, this year, this summer,
    this spring, this winter, this fall, this autumn, the other day, recently, lately, just started, just got, just finished,
    ago, since, monday, tuesday, wednesday, thursday, friday, saturday, sunday, mondays, tuesdays, wednesdays,
    thursdays, fridays, saturdays, sundays, january, february, march, april, june, july, august, september, october,
    november, december, in may, jan, feb, apr, jun, jul, aug, sep, sept, oct, nov, dec, every day, every week,
    every month, every year, every morning, every evening, weekly, monthly, daily, quarterly, o'clock, noon, midnight,
    am, pm, christmas, easter, birthday, anniversary, weekend, quarter, sprint, last sprint, next sprint, a few days,
    a few weeks, a few months, a few years, years old, last monday, last tuesday, last friday, for years, for months,
    for weeks, since i was, growing up, as a kid, when i was"""
)
NUMBER_WORDS = word_set(
    """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half twice
    first second third fourth fifth percent"""
)

WORK_DONE = word_set(
    """added applied archived benchmarked booked built bumped cached cancelled changed checked cleaned closed committed
    compared compiled completed confirmed configured converted copied created decided deleted deployed disabled
    documented downloaded drafted dropped emailed enabled extracted filed filled finished fixed found generated
    identified implemented imported indexed installed kept left loaded located logged made marked measured merged
    migrated moved noticed opened ordered patched pinned posted published pulled pushed put raised read reduced
    refactored released removed renamed replaced reported reproduced reran rescheduled reserved resolved restored
    retried reverted reviewed rewritten rewrote ran saved scheduled sent set shipped sorted split started stored submitted
    summarised summarized swapped switched tagged tested traced tracked translated tried tuned turned updated upgraded
    uploaded verified went wired written wrote"""
)
COMMITMENTS = Phrases(
    """i'll, i will, we'll, we will, i'm going to, i am going to, from now on, going forward, next step, next steps,
    i plan to, scheduled for, is scheduled, is booked"""
)
FINDINGS = Phrases(
    """root cause, turns out, turned out, caused by, the cause, culprit, bottleneck, the result, the results, results show,
    the finding, found that, found a, found the, found two, found three, shows that, showed that, fails because, fail because, the cheapest, the fastest, the slowest, the best option,
    the smallest, the largest,
    failed because, fails when, happens when, the problem was, the problem is, the issue was, the issue is, the bug,
    conclusion, in conclusion, in short, verdict, winner, outperforms, outperformed, went from, dropped from, fell from,
    rose from, grew from, down from, up from, compared with, compared to, tests pass, tests passed, all green,
    is green, is merged, is deployed, is live, is done, are done, is fixed, was fixed, is ready, are ready, is up at,
    now runs, now uses, is now, are now, lives in, live in, is stored, are stored, the plan is, we agreed, agreed on,
    decided, decision, settled on, going with, chose, chosen, i recommend, my recommendation, i suggest we, i'd recommend,
    no longer, deprecated, retracted, corrected, test failed, tests failed, tests fail, still fails, still failing,
    failed with, because of, due to, expires on, expires in, runs out of, ran out of, rules it out, ruled out, the best,
    the worst, is missing, was missing, is blocked, blocked by, depends on, without errors, no errors, does not support,
    doesn't support, is broken, is down, is full"""
)
MEASURES = word_set(
    """accuracy appointment average baseline benchmark booking branch budget build bug ceiling commit cost coverage
    deadline deposit draft error errors estimate evidence failures f1 fee flight hotel index invoice issue item items
    latency limit list margin median meeting memory merge migration mean mrr order p50 p95 p99 package paper papers
    passed patch percent pr price precision pull queue quota rate ratio recall release replicas report reservation
    respondents room rows run runs sample score section sections seconds server size slide slides spend sprint
    staging studies study suite survey table test tests throughput ticket timeout tokens total train version
    weeks"""
)
OFFERS = Phrases(
    """let me know, would you like, do you want, want me to, shall i, should i, i can help, i can also, i can do that,
    i could, feel free, happy to help, happy to, i'd be happy, i'd be glad, glad to help, glad to, glad it, glad that,
    glad you, if you want, if you'd like, if you like, if you need, just ask, just say, i'm here, here to help, i'll be here,
    i'll be happy, i'll help, i'll wait, i'll do my best, i'm ready, i am ready, ready when you, hope that helps,
    hope this helps, anything else, as an ai, i don't have access, i'm not able, i cannot, i can't, i'm sorry, i apologise,
    i apologize, good luck, have a, sounds good, sounds like, great question, you're welcome, no problem, take a look,
    here is, here's, here are, let me, one moment, working on it, on it"""
)
RESTATEMENTS = Phrases(
    """you, you're, you've, you'd, you'll, your, so you, so your, understood you, noted you, it sounds like you, as you,
    since you, because you, got it you, if you, when you"""
)
ADVICE_OPENERS = Phrases(
    """try, consider, make sure, use, you can, you could, you should, remember to, start by, think about, keep in mind,
    it's worth, it is worth, it might help, it helps, generally, typically, in general, for example, for instance"""
)
