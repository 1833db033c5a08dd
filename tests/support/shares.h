/* shares.h: whether a test's threads have had anything to share. For a program linked with --wrap=team_share
 * (tests/CMakeLists.txt). */
#ifndef TEST_SHARES_H
#define TEST_SHARES_H

/* That teams of several threads, if there were any, have shared work since the last call. */
void shares_expected(void);

#endif
