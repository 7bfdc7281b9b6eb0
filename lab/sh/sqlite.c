// Runs SQL that sorts, joins and counts, and prints the results.
#include "sqlite3-binding.h"
#include <stdio.h>

static int row(void *n, int columns, char **values, char **names) {
	*(int *)n += columns;
	return puts(values[0] ? values[0] : "null") < 0 || !names;
}

int main(void) {
	sqlite3 *db;
	char *message = 0;
	int n = 0;
	if (sqlite3_open(":memory:", &db) || sqlite3_exec(db,
		"create table t(a, b); create index i on t(b);"
		"with recursive c(x) as (values(1) union all select x+1 from c where x<3000) "
		"insert into t select x, hex(x*x) from c;"
		"update t set b = b || 'z' where a % 7 = 0; delete from t where a % 11 = 0;"
		"select sum(a) from t where b like '3%' group by length(b) order by 1;"
		"select group_concat(x) from (select distinct substr(b, 1, 2) as x from t order by x desc limit 9);",
		row, &n, &message))
		return puts(message ? message : "open"), 1;
	sqlite3_close(db);
	return n < 5;
}
