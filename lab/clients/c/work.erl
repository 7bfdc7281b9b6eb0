% Processes, tables, binaries, ports and crashes.
-module(work).
-export([main/1, worker/2]).

main([Rounds]) ->
    error_logger:tty(false),
    Table = ets:new(table, [public, ordered_set, {write_concurrency, true}]),
    [round(Table, N) || N <- lists:seq(1, list_to_integer(atom_to_list(Rounds)))],
    io:format("~p~n", [ets:info(Table, size)]),
    halt().

round(Table, N) ->
    Workers = [spawn_monitor(?MODULE, worker, [Table, N * 100 + I]) || I <- lists:seq(1, 20)],
    [receive {'DOWN', Ref, process, Pid, _} -> ok end || {Pid, Ref} <- Workers],
    ets:match_delete(Table, {{'_', 7}, '_'}),
    _ = erlang:system_info(allocated_areas),
    os:cmd("true").

worker(Table, N) ->
    Binary = term_to_binary([{I, integer_to_binary(I * N), float(I)} || I <- lists:seq(1, 50)], [compressed]),
    ets:insert(Table, [{{N, I}, binary:copy(<<I:64>>, 100)} || I <- lists:seq(1, 10)]),
    _ = [ets:lookup(Table, {N, I}) || I <- lists:seq(1, 10)],
    _ = re:run(lists:duplicate(100, $a), "(a+)(a+)b?$"),
    _ = binary:split(iolist_to_binary([Binary, "x,y"]), [<<",">>, <<"x">>], [global]),
    _ = lists:sort([erlang:phash2({I, N}) || I <- lists:seq(1, 200)]),
    _ = crypto_free(N bsl 500 rem 12345678901234567890123),
    _ = binary_to_term(Binary),
    try descend(30) catch error:bottom -> ok end,
    case N rem 3 of
        0 -> exit(crash);
        1 -> _ = binary_to_term(<<131, 255>>);
        2 -> ok
    end.

crypto_free(N) -> erlang:md5(integer_to_list(N)).

descend(0) -> error(bottom);
descend(N) -> [N | descend(N - 1)].
