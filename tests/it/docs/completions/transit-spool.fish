
complete -c transit-spool -n "__fish_transit_spool_using_subcommand show rm" -f -a "(__fish_transit_ids '[a-z]+')"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -f -a "(__fish_transit_ids 'pending|claimed|dead')"
